"""S3 on this machine: real servers, and a proxy before one that does things wrong.

`start_moto` starts moto's server, in a thread of a process of its own; `start_seaweedfs` SeaweedFS,
a distributed object store; `start_rclone` rclone's server, which ignores conditions of writes.
"""

from loopback_s3.bucket import Bucket
from loopback_s3.proxy import Proxy, before
from loopback_s3.servers import KINDS, Server, start

__all__ = ["KINDS", "Bucket", "Proxy", "Server", "before", "start"]
