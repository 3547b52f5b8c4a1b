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

-- Marks a project as moved, or removes the mark. After it has returned, nothing changes in a marked project.
CREATE FUNCTION lockkeeper.set_moved(of_project integer, to_other text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(of_project, 0);
    PERFORM pg_advisory_xact_lock(hashtextextended(of_project || ' events', 0));
    DELETE FROM lockkeeper.moved WHERE project = of_project;
    IF to_other IS NOT NULL THEN
        INSERT INTO lockkeeper.moved VALUES (of_project, to_other);
    END IF;
END
$$;

-- Fails if a project was moved.
CREATE FUNCTION lockkeeper.refuse_moved(of_project integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', (SELECT other FROM lockkeeper.moved WHERE project = of_project) USING ERRCODE = 'LK002';
END
$$;

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

-- Microseconds on the server's clock.
CREATE FUNCTION lockkeeper.wall() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- The moment on the store's clock. While the server's clock is behind `last`, it stands still, until the next commit.
CREATE FUNCTION lockkeeper.moment(of_project integer) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT greatest(lockkeeper.wall(), last) + ahead FROM lockkeeper.clock WHERE project = of_project
$$;

-- The timeline of the server: a promoted standby begins a new one, and so does a point-in-time recovery.
CREATE FUNCTION lockkeeper.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
$$;

-- The first number of a block. The timeline is in the highest bits: a promoted standby that had not yet received the latest
-- numbers continues above them.
CREATE FUNCTION lockkeeper.numbers() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (lockkeeper.timeline() << 44) + nextval('lockkeeper.numbers')
$$;

-- Makes all later numbers larger than this one. It adds a margin, because others draw numbers at the same time.
CREATE FUNCTION lockkeeper.raise_numbers(above bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('numbers', 0));
    IF lockkeeper.numbers() <= above THEN
        PERFORM setval('lockkeeper.numbers', above - (lockkeeper.timeline() << 44) + 1048576);
    END IF;
END
$$;

-- The incarnation of the server: its timeline, the id of these tables (loading a dump makes new ones), and the time of its start
-- (a restored copy of its files needs a start).
CREATE FUNCTION lockkeeper.server() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT lockkeeper.timeline() || ' ' || 'lockkeeper.record'::regclass::oid || ' '
        || extract(epoch FROM pg_postmaster_start_time())
$$;

-- Since when the server has lost nothing. Null if no client has noticed this incarnation yet.
CREATE FUNCTION lockkeeper.remembers_since(of_project integer) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT since FROM lockkeeper.clock WHERE project = of_project AND server = lockkeeper.server()
$$;

-- Notes the incarnation of the server, and returns since when it has lost nothing. `has_forgotten`: the client has seen numbers
-- that the server has not drawn yet.
CREATE FUNCTION lockkeeper.notice(of_project integer, has_forgotten boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    this text := lockkeeper.server();
    noted lockkeeper.clock;
    uptime bigint := lockkeeper.wall() - (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;
    -- Above every number that was ever drawn, if fewer than 16,384 a second were drawn on average since the tables were made. One
    -- second more, because others draw numbers at the same time.
    above bigint := (extract(epoch FROM clock_timestamp())::bigint - 1767225600) << 14;
    is_restart boolean;
BEGIN
    SELECT * INTO noted FROM lockkeeper.clock WHERE project = of_project FOR UPDATE;
    IF noted.server = this AND NOT has_forgotten THEN
        RETURN noted.since;
    END IF;
    -- After a plain restart: since the start, because the server answered no client before it.
    is_restart := NOT has_forgotten AND regexp_replace(noted.server, ' [^ ]*$', '') = regexp_replace(this, ' [^ ]*$', '');
    noted.since := greatest(lockkeeper.wall(), noted.last) + noted.ahead
        - CASE WHEN is_restart THEN greatest(uptime, 0) ELSE 0 END;
    IF nextval('lockkeeper.numbers') < above THEN
        PERFORM setval('lockkeeper.numbers', above + 32768);
    END IF;
    UPDATE lockkeeper.clock SET server = this, since = noted.since WHERE project = of_project;
    RETURN noted.since;
END
$$;

-- The incarnation of the server that makes these tables has lost nothing.
ALTER TABLE lockkeeper.about ADD COLUMN made_by text NOT NULL DEFAULT lockkeeper.server();

-- Makes a project, unless it is there.
CREATE FUNCTION lockkeeper.make_project(of_name text) RETURNS void LANGUAGE sql AS $$
    WITH made AS (
        INSERT INTO lockkeeper.project (name) SELECT of_name
        WHERE NOT EXISTS (SELECT FROM lockkeeper.project WHERE name = of_name)
        ON CONFLICT DO NOTHING RETURNING id
    )
    -- The server may have lost an older project with this name.
    INSERT INTO lockkeeper.clock
    SELECT id, lockkeeper.wall(), 0, lockkeeper.server(), CASE
        WHEN made_by = lockkeeper.server() THEN 0
        ELSE greatest(
            (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
            (SELECT max(since - ahead) FROM lockkeeper.clock WHERE server = lockkeeper.server())
        )
    END FROM made, lockkeeper.about
$$;

-- Makes changes if what was read is unchanged. Returns the new version, or null if something has changed.
--
-- read_parts, read_versions: parts that were read, with the version that they had; 0 where there was none. read_ids, id_versions:
-- records that were read by id, likewise. read_all: the highest version of all parts, if everything was read. written: the parts
-- of all records that change. The other arrays have one entry for each change. key_texts are the keys of all of them, and
-- key_counts has how many belong to each change; old_ranks are the ranks that tickets have before. A change is 'L' or 'T': add
-- a lease or ticket, 'l' or 't': update it, 'r' or 's': remove it, 'G': grant. of_memory: since when the server had lost nothing,
-- as it was read. of_moment, of_call: the number of this decision, for lockkeeper.settle.
CREATE FUNCTION lockkeeper.commit(
    of_project integer,
    read_parts text[], read_versions bigint[], read_ids bigint[], id_versions bigint[], read_all bigint,
    written text[],
    kinds text[], ids bigint[], claims bytea[], sinces bigint[], seen bigint[], tokens bigint[], pickups bigint[],
    revokeds boolean[], ranks bigint[], priorities integer[], stay bigint[], wakers bigint[], unders bytea[],
    upgradeds bigint[], old_ranks bigint[], key_counts integer[], key_texts text[],
    of_memory bigint, of_moment bigint, of_call bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    hash integer;
    new_version bigint;
    keys text[];
    first_key integer := 1;
    changed_rows integer;
    now_wall bigint := lockkeeper.wall();
BEGIN
    -- Commits that concern the same part or record wait for each other. All lock in the same order, so there is no deadlock.
    IF read_all IS NULL THEN
        PERFORM pg_advisory_xact_lock_shared(of_project, 0);
        FOR hash IN
            SELECT DISTINCT hashtext(name) FROM (
                SELECT unnest(read_parts) UNION ALL SELECT unnest(written)
                UNION ALL SELECT 'i' || unnest(read_ids) UNION ALL SELECT 'i' || unnest(ids)
            ) AS wanted(name) ORDER BY 1
        LOOP
            PERFORM pg_advisory_xact_lock(-of_project, hash);
        END LOOP;
    ELSE
        PERFORM pg_advisory_xact_lock(of_project, 0);
    END IF;

    IF EXISTS (
        SELECT FROM unnest(read_parts, read_versions) AS was(part, version)
        LEFT JOIN lockkeeper.part AS found ON found.project = of_project AND found.part = was.part
        WHERE coalesce(found.version, 0) <> was.version
    ) OR EXISTS (
        SELECT FROM unnest(read_ids, id_versions) AS was(id, version)
        LEFT JOIN lockkeeper.record AS found ON found.project = of_project AND found.id = was.id
        WHERE coalesce(found.version, 0) <> was.version
    ) OR of_memory <> coalesce(lockkeeper.remembers_since(of_project), 0)
    OR read_all <> (SELECT coalesce(max(version), 0) FROM lockkeeper.part WHERE project = of_project)
    THEN
        RETURN NULL;
    END IF;

    IF EXISTS (SELECT FROM lockkeeper.moved WHERE project = of_project) THEN
        PERFORM lockkeeper.refuse_moved(of_project);
    END IF;
    INSERT INTO lockkeeper.decision VALUES (of_project, of_moment, of_call, true) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        -- The client has given this decision up.
        RETURN NULL;
    END IF;
    new_version := nextval('lockkeeper.versions');
    FOR place IN 1 .. coalesce(array_length(kinds, 1), 0) LOOP
        keys := key_texts[first_key : first_key + key_counts[place] - 1];
        first_key := first_key + key_counts[place];
        IF kinds[place] IN ('L', 'T') THEN
            INSERT INTO lockkeeper.record VALUES (
                of_project, ids[place], new_version, claims[place], sinces[place], seen[place], tokens[place], pickups[place],
                revokeds[place], ranks[place], priorities[place], stay[place], wakers[place], unders[place], upgradeds[place]
            ) ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
        ELSIF kinds[place] IN ('r', 's') THEN
            DELETE FROM lockkeeper.record
            WHERE project = of_project AND id = ids[place] AND rank IS NOT DISTINCT FROM old_ranks[place];
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
        ELSE
            UPDATE lockkeeper.record SET
                version = new_version, claim = claims[place], since = sinces[place], seen_at = seen[place],
                token = tokens[place], pickup_by = pickups[place], revoked = revokeds[place], rank = ranks[place],
                priority = priorities[place], stays = stay[place], waker = wakers[place], under = unders[place],
                upgrades = upgradeds[place]
            WHERE project = of_project AND id = ids[place] AND rank IS NOT DISTINCT FROM old_ranks[place];
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
        END IF;
        IF changed_rows <> 1 THEN
            RAISE EXCEPTION 'record % is not what it should be', ids[place] USING ERRCODE = 'LK001';
        END IF;
        IF kinds[place] IN ('L', 'T') THEN
            INSERT INTO lockkeeper.key SELECT of_project, unnest(keys), ids[place];
        ELSIF kinds[place] IN ('r', 's') THEN
            DELETE FROM lockkeeper.key WHERE project = of_project AND id = ids[place] AND key = ANY (keys);
            GET DIAGNOSTICS changed_rows = ROW_COUNT;
        ELSIF kinds[place] = 'G' THEN
            -- A lease has the keys of its ticket, except those of the leases under which the ticket waited.
            DELETE FROM lockkeeper.key WHERE project = of_project AND id = ids[place] AND key = ANY (keys) AND key LIKE 'u%';
        ELSE
            changed_rows := (
                SELECT count(*) FROM lockkeeper.key
                WHERE project = of_project AND id = ids[place] AND key = ANY (keys)
            );
        END IF;
        IF kinds[place] IN ('r', 's', 'l', 't') AND changed_rows <> array_length(keys, 1) THEN
            RAISE EXCEPTION 'record % has other keys', ids[place] USING ERRCODE = 'LK001';
        END IF;
    END LOOP;

    INSERT INTO lockkeeper.part SELECT of_project, unnest(written), new_version
    ON CONFLICT (project, part) DO UPDATE SET version = excluded.version;
    DELETE FROM lockkeeper.part AS gone
    WHERE project = of_project AND part = ANY (written) AND left(part, 1) NOT IN ('n', 'p')
        AND NOT EXISTS (SELECT FROM lockkeeper.key WHERE key.project = of_project AND key.key = gone.part);
    IF array_length(kinds, 1) > 0 THEN
        UPDATE lockkeeper.clock SET ahead = ahead + greatest(0, last - now_wall), last = now_wall
        WHERE project = of_project AND (now_wall < last OR now_wall > last + 1000000);
        IF FOUND THEN
            -- At most once a second: clients ask about a decision within seconds, or never.
            DELETE FROM lockkeeper.decision WHERE project = of_project AND moment < of_moment - 600000000;
        END IF;
    END IF;
    RETURN new_version;
END
$$;

-- Whether a decision was committed. If it was not, it is marked, so that it never will be: the server may still read it from a
-- broken connection. Waits while the server makes its changes.
CREATE FUNCTION lockkeeper.settle(of_project integer, of_moment bigint, of_call bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lockkeeper.decision VALUES (of_project, of_moment, of_call, false) ON CONFLICT DO NOTHING;
    RETURN (SELECT committed FROM lockkeeper.decision WHERE project = of_project AND moment = of_moment AND call = of_call);
END
$$;
