-- The functions that read and change leases and tickets.
--
-- Planning a statement costs the server more than executing it. So the functions keep their plans (`force_generic_plan`), and all
-- steps by index: a plan may be older than most rows. Such plans look costly to the server, which would compile them each
-- time, so JIT is off.

-- The versions of parts; 0 where there is none. It sees what the statement sees that calls it.
CREATE OR REPLACE FUNCTION lockkeeper.versions(of_project integer, parts text[]) RETURNS bigint[] LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN ARRAY(
        SELECT coalesce(found.version, 0) FROM unnest(parts) WITH ORDINALITY AS wanted(part, place)
        LEFT JOIN lockkeeper.part AS found ON found.project = of_project AND found.part = wanted.part ORDER BY place
    );
END
$$;

-- The records with these keys, and those with a key from `low` up to `high`.
CREATE OR REPLACE FUNCTION lockkeeper.records_in(of_project integer, keys text[], low text, high text)
RETURNS SETOF lockkeeper.record LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT found.* FROM lockkeeper.record AS found WHERE project = of_project AND id = ANY (ARRAY(
        SELECT k.id FROM lockkeeper.key AS k WHERE k.project = of_project AND k.key = ANY (keys)
        UNION SELECT k.id FROM lockkeeper.key AS k WHERE k.project = of_project AND k.key >= low AND k.key < high
    ));
END
$$;

-- Marks a project as moved, or removes the mark. After it has returned, nothing changes in a marked project.
CREATE OR REPLACE FUNCTION lockkeeper.set_moved(of_project integer, to_other text) RETURNS void LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE FUNCTION lockkeeper.refuse_moved(of_project integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', (SELECT other FROM lockkeeper.moved WHERE project = of_project) USING ERRCODE = 'LK002';
END
$$;

-- The incarnation of the server that makes these tables has lost nothing.
ALTER TABLE lockkeeper.about ADD COLUMN IF NOT EXISTS made_by text NOT NULL DEFAULT lockkeeper.server();

-- Makes a project, unless it is there.
CREATE OR REPLACE FUNCTION lockkeeper.make_project(of_name text) RETURNS void LANGUAGE sql AS $$
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
CREATE OR REPLACE FUNCTION lockkeeper.commit(
    of_project integer,
    read_parts text[], read_versions bigint[], read_ids bigint[], id_versions bigint[], read_all bigint,
    written text[],
    kinds text[], ids bigint[], claims bytea[], sinces bigint[], seen bigint[], tokens bigint[], pickups bigint[],
    revokeds boolean[], ranks bigint[], priorities integer[], stay bigint[], wakers bigint[], unders bytea[],
    upgradeds bigint[], old_ranks bigint[], key_counts integer[], key_texts text[],
    of_memory bigint, of_moment bigint, of_call bigint
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
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
CREATE OR REPLACE FUNCTION lockkeeper.settle(of_project integer, of_moment bigint, of_call bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lockkeeper.decision VALUES (of_project, of_moment, of_call, false) ON CONFLICT DO NOTHING;
    RETURN (SELECT committed FROM lockkeeper.decision WHERE project = of_project AND moment = of_moment AND call = of_call);
END
$$;
