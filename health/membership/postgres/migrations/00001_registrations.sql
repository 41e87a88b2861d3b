-- +goose Up
CREATE TABLE IF NOT EXISTS consumer_registrations (
    stream_name        TEXT        NOT NULL, -- the pipeline
    group_id           TEXT        NOT NULL, -- kafka.group
    consumer_id        TEXT        NOT NULL, -- host-pid-random
    last_heartbeat     TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    session_timeout_ms BIGINT      NOT NULL,
    PRIMARY KEY (stream_name, group_id, consumer_id)
);

-- For operators: those of all groups. It finds the table wherever it is called from, without a search_path.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cleanup_stale_consumers() RETURNS INTEGER SET search_path FROM CURRENT AS $$
DECLARE
    deleted_count INTEGER;
BEGIN
    DELETE FROM consumer_registrations
    WHERE last_heartbeat < NOW() - (session_timeout_ms || ' milliseconds')::INTERVAL;
    GET DIAGNOSTICS deleted_count = ROW_COUNT;
    RETURN deleted_count;
END;
$$ LANGUAGE plpgsql;
-- +goose StatementEnd

-- For members: those of their own group.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cleanup_stale_consumers(of_stream TEXT, of_group TEXT) RETURNS INTEGER SET search_path FROM CURRENT AS $$
DECLARE
    deleted_count INTEGER;
BEGIN
    DELETE FROM consumer_registrations
    WHERE stream_name = of_stream AND group_id = of_group
        AND last_heartbeat < NOW() - (session_timeout_ms || ' milliseconds')::INTERVAL;
    GET DIAGNOSTICS deleted_count = ROW_COUNT;
    RETURN deleted_count;
END;
$$ LANGUAGE plpgsql;
-- +goose StatementEnd
