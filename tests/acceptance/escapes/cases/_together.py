"""Stands after the prelude where several probes are tried: each in a process of its own, so that none sees another."""

#: A probe's last word.
END = "that was all"


def probe(name, source):
    """Try one; what was possible there, or an end out of order, is a breach here."""
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            BREACHES.clear()
            globals()["breach"] = lambda what: None if what in BREACHES else BREACHES.append(what)
            exec(compile(source, name, "exec"), globals())
            with os.fdopen(its, "w") as found:
                found.write("\n".join([*BREACHES, END]))
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(its)
    with os.fdopen(ours) as found:
        said = found.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for what in said[:-1]:
        breach(f"{name}: {what}")
    if status or said[-1:] != [END]:
        breach(f"{name}: it ended with {status} before its end")
    else:
        print("TRIED:", name, flush=True)
