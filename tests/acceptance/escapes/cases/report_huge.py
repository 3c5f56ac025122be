"""
why: A message that announces 4 GiB is tampering; the judge takes none of it.
boards: [judge]
verdict: rejected
error: harness's own channel
"""
os.write(3, b"KRW1" + (0xFFFFFFFF).to_bytes(4, "big") + b"\0" + b"x" * 65536)
