-- What members may do with the tables. Run it as sluice_owner, after `connector check` has created
-- the tables with the URL of sluice_owner. Leave out what the configuration does not use.

-- fingerprints.store: postgres
GRANT SELECT, INSERT, UPDATE, DELETE ON sluice.processed_events TO sluice;
GRANT SELECT, INSERT, UPDATE, DELETE ON sluice.processed_scopes TO sluice;
-- members.store: postgres
GRANT SELECT, INSERT, UPDATE, DELETE ON sluice.consumer_registrations TO sluice;
GRANT SELECT, INSERT, UPDATE, DELETE ON sluice.consumer_last_seen TO sluice;
-- ops.mirror_url_file: copies are added and never changed
GRANT SELECT, INSERT ON sluice.audit_log TO sluice;
