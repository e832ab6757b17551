// Tries each known way out of a sandbox in the sandboxes of procwire, of `codex sandbox` and of plain bubblewrap, as root and
// as an ordinary user, and writes docs/sandbox-matrix.md. Requires root, bubblewrap, a C compiler and `cd interop && npm ci`.
//
//   npm run sandbox:matrix
//   npm run sandbox:matrix -- TEXT     tries the ways whose name contains TEXT, and writes nothing
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { landlockVersion } from "../../src/host/native-support.ts";
import { toSandboxRequest } from "../../src/tools/policy/sandbox-choice.ts";
import type { Fixture, Json } from "../../test/escape/inside.ts";
import { policy } from "../../test/support/network/network-config.ts";
import { changeOwner, commandAs, USERS, type User } from "../../test/support/system/users.ts";
import { MatrixHost, SECRET_VARIABLE } from "./sandbox-places.ts";
import { type Place, SLEEPER, WAYS, type WayOut } from "./sandbox-ways.ts";

const root = join(import.meta.dirname, "..", "..");
const CODEX = join(root, "interop", "node_modules", ".bin", "codex");
if (!existsSync(CODEX)) throw new Error("`codex` is not installed; run `cd interop && npm ci`");
const [CODEX_VERSION = ""] = execFileSync(CODEX, ["--version"], { encoding: "utf8" }).match(/\d[\w.-]*/) ?? [];
const ATTEMPT_TIMEOUT_MS = 60_000;

interface Attempt {
  fixture: Fixture;
  place: Place;
  way: WayOut;
  script: string;
}

interface Sandbox {
  name: string;
  /** Runs the script with bash in the workspace. Returns its output. */
  run(attempt: Attempt): Promise<string>;
  hasNetwork?: boolean;
  own: string | null;
  /** Returns the credential file of the sandboxing program, or null if it has none. */
  credential: (host: MatrixHost) => string | null;
}

const RULES = {
  enforceManagedNetwork: true,
  networkProxy: { proxy: policy({ domains: { "allowed.test": "allow" }, allowLocalBinding: true }) },
};

const variables = ({ way, place }: Attempt, path: string) => ({
  PATH: way.variable === "PATH" ? `${place.workspace}:${path}` : path,
  HOME: way.variable === "HOME" ? place.workspace : place.outside,
});

function procwire(name: string, writable: boolean, network: boolean, more: Json = {}): Sandbox {
  return {
    name,
    own: ".procwire",
    credential: ({ tokenFile }) => tokenFile,
    hasNetwork: network,
    run: async (attempt) => {
      const { fixture, place, way, script } = attempt;
      const writableRoots = writable ? [place.workspace] : [];
      const sandbox = toSandboxRequest({ type: "bubblewrap", writableRoots, network, privateTmp: true });
      const env = variables(attempt, "/usr/bin:/bin");
      const options = { env, tty: way.hasTerminal === true, ...more };
      return (await fixture.script(sandbox ?? {}, `cd ${place.workspace}; ${script}`, options)).output;
    },
  };
}

const codexHome = ({ fixture }: { fixture: Fixture }) => fixture.makeDirectory("codex-home");

const quote = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;

/** Runs a program as the fixture's user, with an open descriptor of its directory, which a sandbox must not pass on. */
async function runProgram(attempt: Attempt, argv: string[]): Promise<string> {
  const { fixture, place, way } = attempt;
  const command = way.hasTerminal ? ["script", "-qec", argv.map(quote).join(" "), "/dev/null"] : argv;
  const shell = ["/bin/bash", "-c", `exec 9<${fixture.directory}; exec "$@"`, "sh", ...command];
  const [file = "", ...args] = [...commandAs(fixture.user), ...shell];
  const child = spawn(file, args, {
    cwd: place.workspace,
    env: { ...variables(attempt, process.env.PATH ?? ""), ...SECRET_VARIABLE, CODEX_HOME: codexHome(attempt) },
    stdio: ["ignore", "pipe", "ignore"],
    timeout: ATTEMPT_TIMEOUT_MS,
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const closed = once(child, "close");
  await once(child, "exit");
  // A process that the attempt leaves behind may keep the pipe open.
  await Promise.race([closed, setTimeout(500)]);
  child.stdout.destroy();
  return output;
}

/** Columns. A cell has one word if all sandboxes of the column agree, else a word per sandbox. */
const COLUMNS: readonly { name: string; sandboxes: readonly Sandbox[] }[] = [
  {
    name: "procwire",
    sandboxes: [
      procwire("read-only", false, false),
      procwire("workspace-write", true, false),
      procwire("network rules", true, false, RULES),
    ],
  },
  { name: "procwire, network on", sandboxes: [procwire("network on", true, true)] },
  {
    name: `codex sandbox ${CODEX_VERSION}`,
    sandboxes: [
      {
        name: "codex",
        own: ".codex",
        credential: (host) => {
          const path = join(codexHome(host), "auth.json");
          writeFileSync(path, JSON.stringify({ OPENAI_API_KEY: "matrix-secret", tokens: null, last_refresh: null }));
          changeOwner(host.fixture.user, path);
          return path;
        },
        run: (attempt) => {
          const mode = ["-c", 'sandbox_mode="workspace-write"'];
          return runProgram(attempt, [CODEX, "sandbox", ...mode, "--", "/bin/bash", "-c", attempt.script]);
        },
      },
    ],
  },
  {
    name: "bwrap",
    sandboxes: [
      {
        name: "bwrap",
        own: null,
        credential: () => null,
        run: (attempt) => {
          const { workspace } = attempt.place;
          const binds = ["--ro-bind", "/", "/", "--bind", workspace, workspace, "--dev", "/dev", "--proc", "/proc"];
          const command = ["--unshare-all", "--die-with-parent", "/bin/bash", "-c", attempt.script];
          return runProgram(attempt, ["/usr/bin/bwrap", ...binds, ...command]);
        },
      },
    ],
  },
];

/** Shows which attempts succeed on this host at all. */
const UNSANDBOXED: Sandbox = {
  name: "none",
  own: ".procwire",
  credential: ({ tokenFile }) => tokenFile,
  run: (attempt) => runProgram(attempt, ["/bin/bash", "-c", attempt.script]),
};

function findSleepers({ uid }: User): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        if (statSync(`/proc/${pid}`).uid !== uid) return false;
        return readFileSync(`/proc/${pid}/cmdline`, "latin1") === `${SLEEPER.join("\0")}\0`;
      } catch {
        return false;
      }
    })
    .map(Number);
}

/** Reports whether the process still runs after the time in which a sandbox ends. */
async function hasSleeper(user: User): Promise<boolean> {
  for (let left = 50; left > 0 && findSleepers(user).length > 0; left--) await setTimeout(100);
  return findSleepers(user).length > 0;
}

async function judge(way: WayOut, sandbox: Sandbox, host: MatrixHost): Promise<string> {
  await using place = await host.prepare(way, { own: sandbox.own, credential: sandbox.credential(host) });
  const script = way.script(place);
  if (script === null) return "none";
  const { fixture } = host;
  const output = await sandbox.run({ fixture, place, way, script: `echo started; (${script}) 2>/dev/null` });
  const hasEscaped =
    output.includes("escaped") || (await way.isEscaped?.(place)) === true || (await hasSleeper(fixture.user));
  for (const pid of findSleepers(fixture.user)) process.kill(pid, "SIGKILL");
  if (hasEscaped) return way.isNetwork && sandbox.hasNetwork ? "granted" : "**open**";
  return output.includes("started") ? "held" : "not run";
}

/** Joins the words of the sandboxes of one column. */
function toCell(words: readonly { name: string; word: string }[]): string {
  const [first] = words;
  if (words.every(({ word }) => word === first?.word)) return first?.word ?? "";
  return words.map(({ name, word }) => `${name}: ${word}`).join(", ");
}

async function tableFor(user: User, ways: readonly WayOut[]): Promise<string> {
  await using host = await MatrixHost.open(user);
  const rows: string[] = [];
  for (const way of ways) {
    const isPossible = (await judge(way, UNSANDBOXED, host)) === "**open**";
    const cells: string[] = [];
    for (const { sandboxes } of COLUMNS) {
      const words: { name: string; word: string }[] = [];
      for (const sandbox of sandboxes) {
        const word = await judge(way, sandbox, host);
        words.push({ name: sandbox.name, word: word === "held" && !isPossible ? "impossible" : word });
      }
      cells.push(toCell(words));
    }
    rows.push(`| ${[way.name, ...cells].join(" | ")} |`);
    console.log(`${user.name}: ${way.name}: ${cells.join(", ")}`);
  }
  const header = ["way out", ...COLUMNS.map(({ name }) => name)];
  return [`| ${header.join(" | ")} |`, `|${"---|".repeat(header.length)}`, ...rows].join("\n");
}

function describeHost(): string {
  const abi = landlockVersion();
  const landlock = abi === null ? "no Landlock" : `Landlock version ${abi}`;
  const [bwrap = ""] = execFileSync("bwrap", ["--version"], { encoding: "utf8" }).split("\n");
  return `Measured on Linux ${release().split("-")[0]} with ${landlock} and ${bwrap}.`;
}

const INTRODUCTION = `# Sandbox matrix

\`npm run sandbox:matrix\` writes this page: it tries each way out in each sandbox. \`test/escape/\` contains more attempts of each family,
and fails if procwire does not hold one. [SECURITY.md](../SECURITY.md#sandbox-guarantees) states the guarantees and limits.

${describeHost()}
Without Landlock version 2, procwire does not hold the named pipe. Without version 6, a command with the network on reaches abstract
sockets of the host. \`procwire doctor\` reports the version, or its absence.

| word | meaning |
|---|---|
| held | the attempt failed |
| granted | the attempt succeeded, because the caller granted network access |
| **open** | the attempt succeeded |
| impossible | the attempt fails on this host without a sandbox too |
| none | the sandboxing program has no such file |
| not run | the sandbox did not start the command |

- **procwire**: \`read-only\`, \`workspace-write\` and \`workspace-write\` with network rules, which allow one other host. One word holds for all three.
- **procwire, network on**: \`workspace-write\` with \`--network on\`.
- **codex sandbox**: \`sandbox_mode="workspace-write"\`, its default network. This mode grants \`/tmp\`. The command inherits all variables.
- **bwrap**: \`--ro-bind / / --bind WORKSPACE WORKSPACE --dev /dev --proc /proc --unshare-all --die-with-parent\`. The command inherits all variables.
`;

/** Lists the rows of each file of the escape suite. */
function listTests(): string {
  const names = [...new Set(WAYS.flatMap(({ tests }) => tests))].sort();
  const rows = names.map((name) => {
    const ways = WAYS.filter(({ tests }) => tests.includes(name)).map((way) => way.name);
    return [`- \`${name}.test.ts\``, ...ways.map((way) => `  - ${way}`)].join("\n");
  });
  return rows.join("\n");
}

const [asRoot, ordinary] = USERS;
if (!asRoot || !ordinary) throw new Error("the matrix has a part for root; run it as root");
const [text] = process.argv.slice(2);
const ways = WAYS.filter(({ name }) => name.includes(text ?? ""));
const [rootTable, ordinaryTable] = await Promise.all([tableFor(asRoot, ways), tableFor(ordinary, ways)]);
const page = `${INTRODUCTION}
## As root

${rootTable}

## As an ordinary user

${ordinaryTable}

## Escape suite

Rows by file of \`test/escape/\`:

${listTests()}
`;
if (text === undefined) writeFileSync(join(root, "docs", "sandbox-matrix.md"), page);
