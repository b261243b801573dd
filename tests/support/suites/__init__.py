"""The quick suite of tests, the rest, and the order in which their files run.

Only measured times (`times.txt`, written by `make times`) decide: a test function is quick if its
cases take less than `LIMIT` seconds on average, together with its part of what tests of its file
share. A function without a measured time is quick. Slow tests that represent a promise
(`representatives.txt`) are in the quick suite as well.

`names` has the names of tests here, `measured` reads and writes times, `selection` is the plugin of
pytest, and `python -m suites` renews and checks the times.
"""
