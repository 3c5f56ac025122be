"""
why: No control socket of the host is in the container.
relax: docker_socket
"""
import stat

for path in (
    "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
    "/run/crio/crio.sock", "/run/systemd/private", "/run/dbus/system_bus_socket", "/var/run/docker", "@DOCKER_SOCKET@",
):
    if os.path.exists(path):
        breach(f"{path} is there")
for directory, _, names in os.walk("/run"):
    for name in names:
        if stat.S_ISSOCK(os.lstat(f"{directory}/{name}").st_mode):
            breach(f"{directory}/{name} is a socket")
