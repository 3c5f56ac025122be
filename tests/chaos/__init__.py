"""A storm over real processes: PostgreSQL, daemons and the network fail at random while jobs run.

    server     PostgreSQL under the storm's control, fsync on: a primary, and a standby that takes over
    upgrades   migrations under way
    proxy      the network between one process and the server, with the ways it can break
    script     what a submission of the storm says about its own evaluation; the words a submission ends with
    daemon     the program of one host: the real daemon, an evaluator that obeys scripts, an engine that is none
    hosts      those programs as processes: started, killed, frozen, drained
    faults     what goes wrong, when: a plan drawn from a seed
    producer   the frontend: submits, cancels, repeats what got no answer
    ledger     what must hold all the time, and what must have happened in the end
    storm      all of it together; `make chaos` and `test_storm.py` call it

    dockerd    a container engine of a test's own, and what it holds; `test_leaks.py` kills daemons and restarts it

Nothing here knows how the queue does it: the ledger reads tables and the daemons' journals.
"""
