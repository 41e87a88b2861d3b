-- +goose Up
ALTER TABLE consumer_registrations
    ADD COLUMN IF NOT EXISTS status          TEXT        NOT NULL DEFAULT 'RUNNING',
    ADD COLUMN IF NOT EXISTS status_since    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    ADD COLUMN IF NOT EXISTS last_message_at TIMESTAMPTZ, -- NULL: never
    ADD COLUMN IF NOT EXISTS consumer_lag    BIGINT;      -- NULL: unknown

-- What a registration was when it was last renewed. It outlives the registration: that somebody is missing is seen here.
CREATE TABLE IF NOT EXISTS consumer_last_seen (
    stream_name        TEXT        NOT NULL,
    group_id           TEXT        NOT NULL,
    consumer_id        TEXT        NOT NULL,
    last_heartbeat     TIMESTAMPTZ NOT NULL,
    session_timeout_ms BIGINT      NOT NULL,
    status             TEXT        NOT NULL,
    status_since       TIMESTAMPTZ NOT NULL,
    last_message_at    TIMESTAMPTZ,
    consumer_lag       BIGINT,
    PRIMARY KEY (stream_name, group_id, consumer_id)
);
