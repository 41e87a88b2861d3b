-- +goose Up
-- A partition as one pipeline takes it into one table, and up to which offset its rows are remembered. An id is never
-- used again: a fingerprint that begins with it belongs to this scope.
CREATE TABLE IF NOT EXISTS processed_scopes (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  scope TEXT NOT NULL UNIQUE,
  next_offset BIGINT NOT NULL DEFAULT 0
);

-- Tables of an earlier version, made without goose: event_id was <id of the scope>/<fingerprint>, which is the column fingerprint now. Rows from
-- then have no event_id. The column through gets another name so that members of that version stop with an error: they would
-- look for fingerprints in event_id, and take duplicates for new records. Nothing here rewrites rows.
--
-- processed_scopes comes first: members lock the tables in this order.
-- +goose StatementBegin
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('processed_scopes') AND attname = 'through' AND NOT attisdropped) THEN
    ALTER TABLE processed_scopes RENAME COLUMN through TO next_offset;
  END IF;
  IF to_regclass('processed_events') IS NOT NULL
    AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('processed_events') AND attname = 'fingerprint' AND NOT attisdropped) THEN
    ALTER TABLE processed_events RENAME COLUMN event_id TO fingerprint;
    ALTER TABLE processed_events ADD COLUMN event_id TEXT;
  END IF;
END
$$;
-- +goose StatementEnd

-- What was processed. event_id is the producer's own id of a record, or the fingerprint where there is none. It is not unique:
-- two partitions may have records of the same id. recorded_at is the record's timestamp in milliseconds, by which the window
-- goes.
CREATE TABLE IF NOT EXISTS processed_events (
  event_id TEXT,
  "offset" BIGINT NOT NULL,
  processed_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
  fingerprint TEXT PRIMARY KEY,
  scope BIGINT,
  recorded_at BIGINT
);
CREATE INDEX IF NOT EXISTS idx_processed_events_offset ON processed_events ("offset");
CREATE INDEX IF NOT EXISTS idx_processed_events_window ON processed_events (scope, recorded_at);
CREATE INDEX IF NOT EXISTS idx_processed_events_event_id ON processed_events (event_id) WHERE event_id IS NOT NULL;
