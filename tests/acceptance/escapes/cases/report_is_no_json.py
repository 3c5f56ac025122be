"""
why: A message nested deeper than a parser can count is tampering, not a crash of the judge.
boards: [judge]
verdict: rejected
error: not JSON
"""
body = b"[" * 100_000
os.write(3, b"KRW1" + len(body).to_bytes(4, "big") + b"\0" + body)
