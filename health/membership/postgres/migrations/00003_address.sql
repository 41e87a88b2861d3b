-- +goose Up
-- Where other machines reach the member's /health, as http://host:port; NULL: they do not.
ALTER TABLE consumer_registrations ADD COLUMN IF NOT EXISTS address TEXT;
ALTER TABLE consumer_last_seen ADD COLUMN IF NOT EXISTS address TEXT;
