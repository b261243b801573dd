"""Methods that combine task vectors, the differences ``x - base``, and add them to the base."""
