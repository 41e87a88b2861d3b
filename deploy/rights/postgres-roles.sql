-- Two roles, and a schema of the connector's own. Run it once as an administrator, then give both roles a password.
-- sluice_owner creates the tables and applies migrations; members run as sluice.
CREATE ROLE sluice_owner LOGIN;
CREATE ROLE sluice LOGIN;
CREATE SCHEMA sluice AUTHORIZATION sluice_owner;
GRANT USAGE ON SCHEMA sluice TO sluice;
