import { readdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/**
 * Sockets, and directories of sockets, of host services that grant more rights than a sandbox. A service may trust its
 * peer's user id, or accept every local user.
 */
const FIXED_PATHS = [
  "/run/docker.sock",
  "/run/containerd",
  "/run/crio",
  "/run/cri-dockerd.sock",
  "/run/k3s",
  "/run/podman",
  "/run/buildkit",
  "/run/libvirt",
  "/run/lxd",
  "/run/lxd.socket",
  "/run/incus",
  "/var/lib/lxd",
  "/var/snap/lxd/common/lxd",
  "/var/lib/incus",
  "/run/snapd.socket",
  "/run/dbus",
  "/run/systemd/private",
  "/run/systemd/notify",
  "/run/postgresql",
  "/run/mysqld",
  "/run/user",
];

/** Docker Desktop and other runtimes in the home directory of the server's user. */
const HOME_PATHS = [".docker/desktop", ".docker/run", ".colima", ".lima", ".rd", ".orbstack/run"];

/** The socket of a Postgres server that was built with its default settings, for any port. */
const POSTGRES_SOCKET = /^\.s\.PGSQL\.\d+$/;

/** Returns the paths of all known host services, present or not. */
export function hostServicePaths(): string[] {
  return [...FIXED_PATHS, ...HOME_PATHS.map((path) => join(homedir(), path)), ...postgresSockets("/tmp")];
}

function postgresSockets(directory: string): string[] {
  try {
    return readdirSync(directory)
      .filter((name) => POSTGRES_SOCKET.test(name))
      .map((name) => join(directory, name));
  } catch {
    return [];
  }
}
