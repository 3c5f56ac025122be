"""From a claimed job to its result, without a database.

    evaluate         `Evaluator`: the environments of a host, and one job after the other
    context          a job with everything that was looked up for it
    kinds            kernels, third parties' programs, groups of modules, validations: each plans and decides
    secret           everything that differs between public and secret runs
    attempt          one job on one slot: build, wait for the slot, run, result
    plan             one container and one request to it
    container_spec   the container of a slot
    build_plan       what compiles a submission, and is built before the run
    build_cache      builds, and keeps what they leave for the submission's jobs
    warm_pool        started containers that wait for jobs
    leftovers        containers that could not be removed
    mode_result      the result lines of one mode, as numbers
    verdict          the parts of a verdict that depend on no kind
    result_rows      the rows of `leaderboard.runs`, in KernelBot's keys
    speed_of_light   the time of a perfect kernel, and impossible times

Must not know the queue, leases or SQL: it gets a job and a slot, and answers with a `JobResult` or an error.
"""
