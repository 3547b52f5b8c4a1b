-- The first and the last part of the output of each attempt, for the readers of other machines.
CREATE TABLE lockkeeper_runs.output (
    project integer NOT NULL,
    run bigint NOT NULL,
    attempt bigint NOT NULL,
    -- The offset of its first byte.
    begin bigint NOT NULL,
    -- The machine that has the whole output.
    host text NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (project, run, attempt, begin)
);
