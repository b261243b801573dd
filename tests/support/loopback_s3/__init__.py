"""S3 on this machine: real servers, and a proxy before a server that causes faults.

`start("moto")` starts moto's server, `start("seaweedfs")` SeaweedFS, a distributed object store,
and `start("rclone")` rclone's server, which ignores conditions of writes.
"""

from loopback_s3.bucket import Bucket
from loopback_s3.proxy import Proxy, before
from loopback_s3.servers import KINDS, Server, start

__all__ = ["KINDS", "Bucket", "Proxy", "Server", "before", "start"]
