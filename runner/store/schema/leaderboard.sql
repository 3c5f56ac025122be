-- Schema `leaderboard`: KernelBot's tables, made only where none of them is there yet. On a database that KernelBot
-- made, this does nothing. Names of constraints and indexes are the ones KernelBot's later migrations would look for.
DO $migration$
BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'leaderboard' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    ) THEN
        RETURN;
    END IF;

    CREATE SCHEMA IF NOT EXISTS leaderboard;

    CREATE TABLE leaderboard.leaderboard (
        id serial PRIMARY KEY,
        name text NOT NULL UNIQUE,
        deadline timestamptz NOT NULL,
        task jsonb NOT NULL,
        creator_id bigint NOT NULL DEFAULT -1,
        forum_id bigint NOT NULL,
        secret_seed bigint NOT NULL DEFAULT floor(random() * 2147483648),
        description text NOT NULL,
        visibility text NOT NULL DEFAULT 'public'
    );

    CREATE TABLE leaderboard.gpu_type (
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
        gpu_type text NOT NULL,
        PRIMARY KEY (leaderboard_id, gpu_type)
    );

    CREATE TABLE leaderboard.templates (
        id serial PRIMARY KEY,
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id),
        lang text NOT NULL,
        code text NOT NULL
    );

    CREATE TABLE leaderboard.user_info (
        id text PRIMARY KEY,
        user_name text,
        cli_id varchar(255),
        cli_valid boolean DEFAULT false,
        cli_auth_provider varchar(255),
        created_at timestamp DEFAULT now(),
        web_auth_id varchar(255),
        is_banned boolean NOT NULL DEFAULT false
    );

    CREATE TABLE leaderboard.code_files (
        id serial PRIMARY KEY,
        old_code text,
        code bytea NOT NULL,
        hash text NOT NULL GENERATED ALWAYS AS (encode(sha256(code), 'hex')) STORED UNIQUE
    );

    CREATE TABLE leaderboard.submission (
        id serial PRIMARY KEY,
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id),
        file_name text NOT NULL,
        user_id text NOT NULL CONSTRAINT fk_user_info REFERENCES leaderboard.user_info (id),
        code_id integer NOT NULL REFERENCES leaderboard.code_files (id),
        submission_time timestamptz NOT NULL,
        done boolean DEFAULT false,
        status text NOT NULL DEFAULT 'active',
        mode_category text
    );
    CREATE INDEX idx_submission_leaderboard_id ON leaderboard.submission (leaderboard_id);
    CREATE INDEX idx_submission_user_id ON leaderboard.submission (user_id);

    CREATE TABLE leaderboard.runs (
        id serial PRIMARY KEY,
        submission_id integer NOT NULL REFERENCES leaderboard.submission (id),
        start_time timestamptz NOT NULL,
        end_time timestamptz NOT NULL,
        mode text NOT NULL,
        secret boolean NOT NULL,
        runner text NOT NULL,
        score numeric,
        passed boolean NOT NULL,
        compilation jsonb,
        meta jsonb,
        result jsonb,
        system_info jsonb NOT NULL
    );
    CREATE INDEX runs_runner_score_idx ON leaderboard.runs (runner, score);
    CREATE INDEX idx_runs_valid_scores ON leaderboard.runs (submission_id, runner, score)
        WHERE NOT secret AND score IS NOT NULL AND passed;

    CREATE TABLE leaderboard.submission_job_status (
        id serial PRIMARY KEY,
        submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE
            CONSTRAINT uq_submission_job_status_submission_id UNIQUE,
        status varchar(255),
        error text,
        created_at timestamptz NOT NULL DEFAULT now(),
        last_heartbeat timestamptz
    );

    CREATE TABLE leaderboard.draft_code (
        id serial PRIMARY KEY,
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
        user_id text NOT NULL REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
        type text NOT NULL DEFAULT 'general',
        code bytea NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        last_modified_at timestamptz NOT NULL DEFAULT now()
    );

    CREATE TABLE leaderboard.rate_limit (
        id serial PRIMARY KEY,
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
        mode_category text NOT NULL CHECK (mode_category IN ('test', 'leaderboard')),
        max_submissions_per_hour integer NOT NULL CHECK (max_submissions_per_hour >= 0),
        UNIQUE (leaderboard_id, mode_category)
    );

    CREATE TABLE leaderboard.leaderboard_invite (
        id serial PRIMARY KEY,
        code text NOT NULL UNIQUE,
        user_id text,
        claimed_at timestamptz,
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX idx_leaderboard_invite_user ON leaderboard.leaderboard_invite (user_id) WHERE user_id IS NOT NULL;

    CREATE TABLE leaderboard.leaderboard_invite_scope (
        invite_id integer NOT NULL REFERENCES leaderboard.leaderboard_invite (id) ON DELETE CASCADE,
        leaderboard_id integer NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
        PRIMARY KEY (invite_id, leaderboard_id)
    );
    CREATE INDEX idx_leaderboard_invite_scope_leaderboard ON leaderboard.leaderboard_invite_scope (leaderboard_id);

    -- KernelBot's migration tool (yoyo 9, bookkeeping version 2) finds its migrations recorded as applied, so that
    -- KernelBot can take this database over. It looks in `public`; a role that may not write there leaves this out.
    IF has_schema_privilege(to_regnamespace('public'), 'CREATE') IS NOT TRUE THEN
        RAISE WARNING 'no CREATE privilege on schema public: KernelBot''s migration bookkeeping is not seeded';
        RETURN;
    END IF;

    CREATE TABLE IF NOT EXISTS public._yoyo_migration (
        migration_hash varchar(64) PRIMARY KEY,
        migration_id varchar(255),
        applied_at_utc timestamp
    );
    CREATE TABLE IF NOT EXISTS public._yoyo_log (
        id varchar(36) PRIMARY KEY,
        migration_hash varchar(64),
        migration_id varchar(255),
        operation varchar(10),
        username varchar(255),
        hostname varchar(255),
        comment varchar(255),
        created_at_utc timestamp
    );
    CREATE TABLE IF NOT EXISTS public._yoyo_version (
        version integer NOT NULL PRIMARY KEY,
        installed_at_utc timestamp
    );
    CREATE TABLE IF NOT EXISTS public.yoyo_lock (
        locked integer DEFAULT 1 PRIMARY KEY,
        ctime timestamp,
        pid integer NOT NULL
    );
    INSERT INTO public._yoyo_version (version, installed_at_utc)
    VALUES (2, now() AT TIME ZONE 'UTC')
    ON CONFLICT DO NOTHING;

    WITH recorded AS (
        INSERT INTO public._yoyo_migration (migration_hash, migration_id, applied_at_utc)
        SELECT encode(sha256(convert_to(m.id, 'UTF8')), 'hex'), m.id,
               -- One microsecond apart: yoyo orders by this time.
               (now() AT TIME ZONE 'UTC') + m.number * interval '1 microsecond'
        FROM unnest(ARRAY[
            '20241208_01_p3yuR-initial-leaderboard-schema',
            '20241214_01_M62BX-drop-old-leaderboard-tables',
            '20241221_01_54Oeg-rename-problem-table',
            '20241222_01_ELxU5-add-gpu-types',
            '20241224_01_Pg4FX-delete-cascade',
            '20241226_01_ZQSOK-add_gpu_type_to_submission',
            '20250106_01_Sgph3-add-leaderboard-creator-id',
            '20250202_01_YYS3Q-leaderboard-rename-reference-to-task',
            '20250221_01_GA8ro-submission-collection',
            '20250228_01_9ANYn-submission-add-user-name',
            '20250304_01_DzORz-collect-system-information-for-each-run',
            '20250316_01_5oMi3-remember-forum-id',
            '20250329_01_7VjJJ-add-a-secret-seed-column',
            '20250406_01_ZXjWK-user-info-add-cli-id',
            '20250412_01_l7Dra-user-info-fix-auth',
            '20250412_02_NN9kK-user-info-cli-drop-old',
            '20250506_01_38PkG-add-index-on-runs-runner-score',
            '20250617_01_c5mrF-task-split',
            '20250728_01_Q3jso-fix-code-table',
            '20250822_01_UtXzl-website-submission',
            '20251106_01_kOjGy-draft-code-editor',
            '20260108_01_gzSm3-add-submission-status',
            '20260225_01_aW5Bu-add-leaderboard-performance-indexes',
            '20260226_01_WgYAV-queryindex',
            '20260311_01_closed-leaderboard-visibility',
            '20260313_01_invite-multi-leaderboard',
            '20260317_01_rate-limits',
            '20260318_01_ban-user',
            '20260319_01_allow-zero-rate-limits'
        ]) WITH ORDINALITY AS m (id, number)
        ON CONFLICT DO NOTHING
        RETURNING migration_hash, migration_id, applied_at_utc
    )
    INSERT INTO public._yoyo_log (id, migration_hash, migration_id, operation, username, hostname, comment,
        created_at_utc)
    SELECT gen_random_uuid()::text, migration_hash, migration_id, 'apply', left(current_user, 255), NULL,
           'recorded by kernel-runner, which made the schema', applied_at_utc
    FROM recorded;
END
$migration$;

-- A deadline that Python has no datetime for spoils every list that its leaderboard stands in, KernelBot's too. One
-- that is there is moved to the last day that both have.
UPDATE leaderboard.leaderboard
SET deadline = least(greatest(deadline, '0001-01-02Z'), '9999-12-30Z')
WHERE deadline NOT BETWEEN '0001-01-02Z' AND '9999-12-30Z';
ALTER TABLE leaderboard.leaderboard DROP CONSTRAINT IF EXISTS runner_deadline;
ALTER TABLE leaderboard.leaderboard
    ADD CONSTRAINT runner_deadline CHECK (deadline BETWEEN '0001-01-02Z' AND '9999-12-30Z');
