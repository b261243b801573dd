"""Which tests are the quick suite, which are the rest, and in which order their files run.

Measured times decide (`times.txt`, written by `make times`), and nothing else: a test function is
quick if each of its cases takes less than `LIMIT` seconds on average, together with its part of
what tests of its file share. A function that has no measured time is quick. Slow tests that stand
for a promise (`representatives.txt`) are in the quick suite as well.

`names` says what a test is called here, `measured` reads and writes times, `selection` is the
plugin of pytest, `python -m suites` renews and checks.
"""
