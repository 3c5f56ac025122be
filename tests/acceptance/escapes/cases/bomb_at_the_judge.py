"""
why: The worker may lower its own oom score below the judge's and hide its memory in files; the judge then dies of the
  submission's limit, which is the submission's fault and no error of ours.
boards: [judge]
verdict: memory_limit
"""
def custom_kernel(data):
    for score in range(0, 1000, 50):
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write(str(score))
            break
        except OSError:
            continue
    block = bytes(4 << 20)
    while True:
        fd = os.memfd_create("bomb")
        for _ in range(16):
            os.write(fd, block)
