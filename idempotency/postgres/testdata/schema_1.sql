-- The tables of the first version, in which event_id was <id of the scope>/<fingerprint>.
-- What was processed. Several programs may share the table: rows of this one have a scope.
CREATE TABLE IF NOT EXISTS processed_events (
  event_id TEXT PRIMARY KEY,
  "offset" BIGINT NOT NULL,
  processed_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX IF NOT EXISTS idx_processed_events_offset ON processed_events ("offset");

-- The record's timestamp in milliseconds, by which the window goes, and whose row it is.
ALTER TABLE processed_events ADD COLUMN IF NOT EXISTS scope BIGINT;
ALTER TABLE processed_events ADD COLUMN IF NOT EXISTS recorded_at BIGINT;
CREATE INDEX IF NOT EXISTS idx_processed_events_window ON processed_events (scope, recorded_at);

-- A partition as one pipeline takes it into one table, and up to which offset its rows are remembered. An id is never
-- used again: what event_id begins with it belongs to this scope.
CREATE TABLE IF NOT EXISTS processed_scopes (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  scope TEXT NOT NULL UNIQUE,
  through BIGINT NOT NULL DEFAULT 0
);
