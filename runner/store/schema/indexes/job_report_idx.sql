-- Jobs whose report is removed after a while, because they count for nothing.
CREATE INDEX CONCURRENTLY job_report_idx ON runner.job (finished_at)
    WHERE report IS NOT NULL AND (verdict <> 'accepted' OR retired_at IS NOT NULL OR state = 'cancelled');
