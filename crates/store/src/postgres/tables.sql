-- Leases and tickets of many projects in one PostgreSQL database.
--
-- The rules of leases are not here: they are in the program. The function lockkeeper.commit makes the changes of a decision if
-- everything that the decision read is unchanged, and lockkeeper.settle returns whether it did.

CREATE SCHEMA lockkeeper;

CREATE TABLE lockkeeper.about (
    -- The version of these tables.
    version integer NOT NULL
);

CREATE TABLE lockkeeper.project (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE
);

-- Ids and tokens. One step is a block of numbers for one client.
CREATE SEQUENCE lockkeeper.numbers INCREMENT BY 16;

-- Versions of parts and records. A version is never used twice.
CREATE SEQUENCE lockkeeper.versions;

-- The store's clock is the server's clock plus the time by which the server's clock was set back. `last` is its last reading.
-- `server` is the latest incarnation of the server that a client has noticed, and `since` the moment since when it has lost
-- nothing.
CREATE TABLE lockkeeper.clock (
    project integer PRIMARY KEY,
    last bigint NOT NULL,
    ahead bigint NOT NULL,
    server text NOT NULL,
    since bigint NOT NULL
);

-- Projects that were moved to another store, and where they are now.
CREATE TABLE lockkeeper.moved (
    project integer PRIMARY KEY,
    other text NOT NULL
);

-- A lease, or a ticket: a ticket has a rank, a lease has a token.
CREATE TABLE lockkeeper.record (
    project integer NOT NULL,
    id bigint NOT NULL,
    version bigint NOT NULL,
    claim bytea NOT NULL,
    since bigint NOT NULL,
    seen_at bigint NOT NULL,
    token bigint,
    pickup_by bigint,
    revoked boolean,
    rank bigint,
    priority integer,
    stays bigint,
    waker bigint,
    under bytea,
    upgrades bigint,
    PRIMARY KEY (project, id),
    CHECK ((token IS NULL) <> (rank IS NULL)),
    CHECK ((token IS NULL) = (revoked IS NULL)),
    CHECK ((rank IS NULL) = (stays IS NULL) AND (rank IS NULL) = (under IS NULL) AND (rank IS NULL) = (priority IS NULL))
);

-- The keys by which records are found.
CREATE TABLE lockkeeper.key (
    project integer NOT NULL,
    key text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    PRIMARY KEY (project, key, id)
);

-- The version of each part of a project. A part is a key, or all keys of paths together. A commit gives a new version to each
-- part in which it changes a record. The rows of names and paths are kept; the others are removed with their last record.
CREATE TABLE lockkeeper.part (
    project integer NOT NULL,
    part text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (project, part)
) WITH (fillfactor = 50);
CREATE INDEX part_version ON lockkeeper.part (project, version);

-- Decisions of the last minutes: committed, or given up by a client whose connection broke. A client chooses moment and call.
CREATE TABLE lockkeeper.decision (
    project integer NOT NULL,
    moment bigint NOT NULL,
    call bigint NOT NULL,
    committed boolean NOT NULL,
    PRIMARY KEY (project, moment, call)
);

