-- KernelBot's thirtieth migration, 20260726_01_application-validation, where the twenty-ninth is the last that is
-- there: on a new database, and on a KernelBot of before 26 July 2026. It is recorded as KernelBot would, so that its
-- own migrations go on. Nothing is done where they are recorded elsewhere than in `public`, or may not be written.
DO $migration$
DECLARE
    v_id constant text := '20260726_01_application-validation';
    v_hash constant text := encode(sha256(convert_to(v_id, 'UTF8')), 'hex');
    v_recorded boolean := false;
    v_owner text;
    v_table text;
BEGIN
    IF to_regclass('leaderboard.validation_sweep') IS NOT NULL
        OR to_regclass('leaderboard.submission_validation') IS NOT NULL THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM pg_class WHERE relname = '_yoyo_migration' AND relkind = 'r') THEN
        IF has_schema_privilege(to_regnamespace('public'), 'USAGE') IS NOT TRUE
            OR to_regclass('public._yoyo_migration') IS NULL
            OR NOT has_table_privilege('public._yoyo_migration', 'SELECT, INSERT')
            OR NOT has_table_privilege('public._yoyo_log', 'INSERT') THEN
            RETURN;
        END IF;
        IF (SELECT array_agg(m.migration_id) FROM public._yoyo_migration m
            WHERE m.migration_id IN ('20260319_01_allow-zero-rate-limits', v_id))
            IS DISTINCT FROM ARRAY['20260319_01_allow-zero-rate-limits']::varchar[] THEN
            RETURN;
        END IF;
        v_recorded := true;
    END IF;

    -- When a task's own script was asked about submissions, and what it said. Kernelboard's ranking joins the second.
    CREATE TABLE leaderboard.validation_sweep (
        id bigserial PRIMARY KEY,
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
        gpu_type text NOT NULL,
        contract_version text NOT NULL,
        scheduled_for date,
        status text NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
        started_at timestamptz NOT NULL DEFAULT now(),
        completed_at timestamptz,
        error text,
        UNIQUE (leaderboard_id, gpu_type, contract_version, scheduled_for)
    );
    CREATE TABLE leaderboard.submission_validation (
        id bigserial PRIMARY KEY,
        submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
        gpu_type text NOT NULL,
        contract_version text NOT NULL,
        status text NOT NULL CHECK (status IN ('completed', 'failed')),
        passed_shapes integer NOT NULL DEFAULT 0 CHECK (passed_shapes >= 0),
        total_shapes integer NOT NULL DEFAULT 0 CHECK (total_shapes >= 0),
        fully_validated boolean NOT NULL DEFAULT false,
        geomean_sync_wall_speedup double precision,
        result jsonb NOT NULL DEFAULT '{}',
        error text,
        checked_at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (submission_id, gpu_type, contract_version)
    );
    CREATE INDEX submission_validation_latest_idx
        ON leaderboard.submission_validation (submission_id, gpu_type, checked_at DESC);

    SELECT pg_get_userbyid(relowner) INTO v_owner FROM pg_class WHERE oid = 'leaderboard.submission'::regclass;
    IF v_owner <> current_user THEN
        FOREACH v_table IN ARRAY ARRAY['validation_sweep', 'submission_validation'] LOOP
            EXECUTE format('ALTER TABLE leaderboard.%I OWNER TO %I', v_table, v_owner);
        END LOOP;
    END IF;

    IF v_recorded THEN
        INSERT INTO public._yoyo_migration (migration_hash, migration_id, applied_at_utc)
        VALUES (v_hash, v_id, clock_timestamp() AT TIME ZONE 'UTC');
        INSERT INTO public._yoyo_log (id, migration_hash, migration_id, operation, username, hostname, comment,
            created_at_utc)
        VALUES (gen_random_uuid()::text, v_hash, v_id, 'apply', left(current_user, 255), NULL,
                'applied by kernel-runner', clock_timestamp() AT TIME ZONE 'UTC');
    END IF;
END
$migration$;
