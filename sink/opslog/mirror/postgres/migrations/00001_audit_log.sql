-- +goose Up
CREATE TABLE IF NOT EXISTS audit_log (
    pipeline  TEXT        NOT NULL,
    seq       BIGINT      NOT NULL, -- of the entry in the operations log of the pipeline
    id        UUID        NOT NULL,
    prev      TEXT        NOT NULL, -- SHA-256 of the entry before, in hex; empty in the first
    hash      TEXT        NOT NULL, -- SHA-256 of the entry, in hex: the prev of the next one
    at        TIMESTAMPTZ NOT NULL, -- by the clock of the host that wrote the entry
    operator  TEXT        NOT NULL,
    host      TEXT        NOT NULL, -- empty: unknown
    kind      TEXT        NOT NULL, -- pause, resume, letters.discard and so on
    reason    TEXT        NOT NULL,
    body      JSON        NOT NULL, -- depends on the kind
    copied_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (pipeline, seq)
);
