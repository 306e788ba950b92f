-- Push, for package pgnotify: every change is told on the channel leaselimit_quota when it is committed. The payload is the
-- tenant whose limit may have changed, or empty if that may be everybody's. Running this again changes nothing.

CREATE OR REPLACE FUNCTION leaselimit_notify_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM pg_notify('leaselimit_quota', OLD.tenant);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM pg_notify('leaselimit_quota', NEW.tenant);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION leaselimit_notify_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('leaselimit_quota', '');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER leaselimit_notify AFTER INSERT OR UPDATE OR DELETE ON leaselimit_tenants
    FOR EACH ROW EXECUTE FUNCTION leaselimit_notify_tenant();
CREATE OR REPLACE TRIGGER leaselimit_notify AFTER INSERT OR UPDATE OR DELETE ON leaselimit_overrides
    FOR EACH ROW EXECUTE FUNCTION leaselimit_notify_tenant();
CREATE OR REPLACE TRIGGER leaselimit_notify_all AFTER TRUNCATE ON leaselimit_tenants
    FOR EACH STATEMENT EXECUTE FUNCTION leaselimit_notify_all();
CREATE OR REPLACE TRIGGER leaselimit_notify_all AFTER TRUNCATE ON leaselimit_overrides
    FOR EACH STATEMENT EXECUTE FUNCTION leaselimit_notify_all();
CREATE OR REPLACE TRIGGER leaselimit_notify_all AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON leaselimit_tier_limits
    FOR EACH STATEMENT EXECUTE FUNCTION leaselimit_notify_all();
