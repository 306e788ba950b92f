-- Tiers, the tenants in them, and exceptions. Running this again changes nothing.
--
-- A limit is capacity tokens at most, of which refill are added evenly every period_ms milliseconds. A capacity of 0 refuses
-- everything. "No limit" is said with unlimited, and in no other way: the constraints allow no row that could be read as both.

CREATE TABLE IF NOT EXISTS leaselimit_tiers (
    tier       text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text        NOT NULL DEFAULT current_user
);

-- The limit of each class of a tier.
CREATE TABLE IF NOT EXISTS leaselimit_tier_limits (
    tier       text        NOT NULL REFERENCES leaselimit_tiers ON DELETE CASCADE ON UPDATE CASCADE,
    class      text        NOT NULL DEFAULT 'default',
    capacity   bigint,
    refill     bigint,
    period_ms  bigint,
    unlimited  boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text        NOT NULL DEFAULT current_user,
    PRIMARY KEY (tier, class),
    CONSTRAINT leaselimit_tier_limits_limit CHECK (
        CASE WHEN unlimited THEN capacity IS NULL AND refill IS NULL AND period_ms IS NULL
        ELSE capacity IS NOT NULL AND capacity BETWEEN 0 AND 9007199254740991
            AND refill IS NOT NULL AND refill BETWEEN 0 AND 9007199254740991
            AND period_ms IS NOT NULL AND period_ms BETWEEN 1 AND 9223372036854 END)
);

CREATE TABLE IF NOT EXISTS leaselimit_tenants (
    tenant     text PRIMARY KEY CHECK (octet_length(tenant) BETWEEN 1 AND 255),
    tier       text        NOT NULL REFERENCES leaselimit_tiers ON UPDATE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text        NOT NULL DEFAULT current_user
);
CREATE INDEX IF NOT EXISTS leaselimit_tenants_tier ON leaselimit_tenants (tier);

-- The exceptions of a tenant: of each class at most one, which takes the place of its tier's limit.
CREATE TABLE IF NOT EXISTS leaselimit_overrides (
    tenant     text        NOT NULL REFERENCES leaselimit_tenants ON DELETE CASCADE ON UPDATE CASCADE,
    class      text        NOT NULL DEFAULT 'default',
    capacity   bigint,
    refill     bigint,
    period_ms  bigint,
    unlimited  boolean     NOT NULL DEFAULT false,
    reason     text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    updated_by text        NOT NULL DEFAULT current_user,
    PRIMARY KEY (tenant, class),
    CONSTRAINT leaselimit_overrides_limit CHECK (
        CASE WHEN unlimited THEN capacity IS NULL AND refill IS NULL AND period_ms IS NULL
        ELSE capacity IS NOT NULL AND capacity BETWEEN 0 AND 9007199254740991
            AND refill IS NOT NULL AND refill BETWEEN 0 AND 9007199254740991
            AND period_ms IS NOT NULL AND period_ms BETWEEN 1 AND 9223372036854 END)
);

CREATE OR REPLACE FUNCTION leaselimit_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    IF NEW.updated_by = OLD.updated_by THEN
        NEW.updated_by := current_user;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER leaselimit_audit BEFORE UPDATE ON leaselimit_tiers
    FOR EACH ROW EXECUTE FUNCTION leaselimit_audit();
CREATE OR REPLACE TRIGGER leaselimit_audit BEFORE UPDATE ON leaselimit_tier_limits
    FOR EACH ROW EXECUTE FUNCTION leaselimit_audit();
CREATE OR REPLACE TRIGGER leaselimit_audit BEFORE UPDATE ON leaselimit_tenants
    FOR EACH ROW EXECUTE FUNCTION leaselimit_audit();
CREATE OR REPLACE TRIGGER leaselimit_audit BEFORE UPDATE ON leaselimit_overrides
    FOR EACH ROW EXECUTE FUNCTION leaselimit_audit();
