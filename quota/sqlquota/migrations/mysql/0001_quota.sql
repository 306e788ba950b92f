-- Tiers, the tenants in them, and exceptions, for MySQL 8.0.16 and MariaDB 10.4 or newer. Running this again changes nothing.
--
-- A limit is capacity tokens at most, of which refill are added evenly every period_ms milliseconds. A capacity of 0 refuses
-- everything. "No limit" is said with unlimited, and in no other way: the constraints allow no row that could be read as both.
--
-- Names are compared byte by byte. MySQL's usual comparison takes 'Acme', 'acme' and 'acme ' for one tenant; even of the _bin
-- collations some ignore spaces at the end, so tenants are binary.

CREATE TABLE IF NOT EXISTS leaselimit_tiers (
    tier       varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    created_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    updated_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    updated_by varchar(255) NOT NULL DEFAULT ''
);

-- The limit of each class of a tier.
CREATE TABLE IF NOT EXISTS leaselimit_tier_limits (
    tier       varchar(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    class      varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'default',
    capacity   bigint,
    refill     bigint,
    period_ms  bigint,
    unlimited  boolean      NOT NULL DEFAULT false,
    created_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    updated_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    updated_by varchar(255) NOT NULL DEFAULT '',
    PRIMARY KEY (tier, class),
    FOREIGN KEY (tier) REFERENCES leaselimit_tiers (tier) ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT leaselimit_tier_limits_limit CHECK (
        CASE WHEN unlimited THEN capacity IS NULL AND refill IS NULL AND period_ms IS NULL
        ELSE capacity IS NOT NULL AND capacity BETWEEN 0 AND 9007199254740991
            AND refill IS NOT NULL AND refill BETWEEN 0 AND 9007199254740991
            AND period_ms IS NOT NULL AND period_ms BETWEEN 1 AND 9223372036854 END)
);

CREATE TABLE IF NOT EXISTS leaselimit_tenants (
    tenant     varbinary(255) NOT NULL PRIMARY KEY,
    tier       varchar(64)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at timestamp(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    updated_at timestamp(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    updated_by varchar(255)   NOT NULL DEFAULT '',
    FOREIGN KEY (tier) REFERENCES leaselimit_tiers (tier) ON UPDATE CASCADE
);

-- The exceptions of a tenant: of each class at most one, which takes the place of its tier's limit.
CREATE TABLE IF NOT EXISTS leaselimit_overrides (
    tenant     varbinary(255) NOT NULL,
    class      varchar(128)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'default',
    capacity   bigint,
    refill     bigint,
    period_ms  bigint,
    unlimited  boolean        NOT NULL DEFAULT false,
    reason     varchar(1000)  NOT NULL DEFAULT '',
    created_at timestamp(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    updated_at timestamp(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    updated_by varchar(255)   NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, class),
    FOREIGN KEY (tenant) REFERENCES leaselimit_tenants (tenant) ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT leaselimit_overrides_limit CHECK (
        CASE WHEN unlimited THEN capacity IS NULL AND refill IS NULL AND period_ms IS NULL
        ELSE capacity IS NOT NULL AND capacity BETWEEN 0 AND 9007199254740991
            AND refill IS NOT NULL AND refill BETWEEN 0 AND 9007199254740991
            AND period_ms IS NOT NULL AND period_ms BETWEEN 1 AND 9223372036854 END)
);
