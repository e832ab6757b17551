import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/printable-text.ts";
import { createLocalBackend } from "../../host/create-local-backend.ts";
import { type Controller, createCgroup } from "../../local/tree/cgroups.ts";
import { loadAddon } from "../../native/addon.ts";
import { nativeFileCandidates } from "../../native/native-files.ts";
import { availableSandboxes, BUBBLEWRAP } from "../../sandbox/sandbox-probe.ts";
import { type Command, defineCommand } from "../command.ts";

const HELP = `Usage: procwire doctor [--json]

Check each part that procwire uses on this host and print how to fix failures. Exits with 1 if a required part is
missing.

Options:
  --json  print one JSON object per line
`;

/** The oldest Node that runs procwire. */
const NODE_MAJOR = 24;

/** One line of the output; with `--json`, one object. */
interface CheckResult {
  name: string;
  isNeeded: boolean;
  works: boolean;
  detail: string;
  /** How to fix a failed check. */
  fix?: string;
}

export const command: Command = defineCommand({
  help: HELP,
  options: { json: { type: "boolean" } },
  takesArguments: false,

  async run(values) {
    const results = [checkNode(), checkAddon(), await checkTerminals(), checkWatchdog(), checkBubblewrap()];
    results.push(checkCgroup("memory", "memoryBytes", 2 ** 30), checkCgroup("pids", "processes", 1000));
    for (const result of results)
      process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : formatResult(result));
    return results.some(({ works, isNeeded }) => isNeeded && !works) ? 1 : 0;
  },
});

function formatResult({ name, isNeeded, works, detail, fix }: CheckResult): string {
  const line = `${works ? "ok  " : isNeeded ? "FAIL" : "warn"} ${name}: ${printableText(detail)}\n`;
  return fix === undefined ? line : `${line}     ${fix}\n`;
}

function passed(name: string, detail: string): CheckResult {
  return { name, isNeeded: false, works: true, detail };
}

function failed(name: string, detail: string, fix: string): CheckResult {
  return { name, isNeeded: false, works: false, detail, fix };
}

function checkNode(): CheckResult {
  const isSupported = Number(process.versions.node.split(".")[0]) >= NODE_MAJOR;
  const result = isSupported
    ? passed("node", process.version)
    : failed("node", process.version, `install Node ${NODE_MAJOR} or newer`);
  return { ...result, isNeeded: true };
}

function checkAddon(): CheckResult {
  const loaded = loadAddon();
  if (loaded.type === "loaded") return passed("addon", "loaded");
  const fix = "install a C++ compiler and run `node native/build.mjs` in the package; terminals require the addon";
  return failed("addon", loaded.why, fix);
}

async function checkTerminals(): Promise<CheckResult> {
  const name = "terminals";
  await using backend = createLocalBackend();
  try {
    const child = await backend.start({
      processId: "doctor",
      argv: ["/bin/sh", "-c", "test -t 0"],
      cwd: "/",
      env: {},
      tty: true,
    });
    const { exitCode } = await child.wait();
    if (exitCode === 0) return passed(name, "a command ran in a terminal");
    throw new Error(`the stdin of a command was not its terminal (exit code ${exitCode})`);
  } catch (error) {
    const fix = "fix the addon first; in a container, mount a devpts at /dev/pts with /dev/ptmx";
    return failed(name, errorMessage(error), fix);
  }
}

function checkWatchdog(): CheckResult {
  const name = "watchdog";
  if (!nativeFileCandidates("watchdog").next().done) return passed(name, "`procwire serve` runs below it");
  const detail = "missing: processes may outlive a server that is killed";
  return failed(name, detail, "install a C compiler and run `node native/build.mjs` in the package");
}

function checkBubblewrap(): CheckResult {
  const name = "bubblewrap";
  if (availableSandboxes().includes(BUBBLEWRAP)) return passed(name, "ran a sandboxed command");
  const detail = "not installed, or cannot create namespaces on this host: commands cannot run sandboxed";
  return failed(name, detail, "install the package `bubblewrap`; in a container, allow user namespaces");
}

/** Checks a limit of process trees with a value that every host accepts. */
function checkCgroup(controller: Controller, limit: string, value: number): CheckResult {
  const name = `cgroup ${controller}`;
  try {
    createCgroup(controller, value).remove();
    return passed(name, `the limit ${limit} is enforced`);
  } catch (error) {
    const fix = `run as root, or with a delegated cgroup (systemd: Delegate=yes); until then the server rejects the limit ${limit}`;
    return failed(name, errorMessage(error), fix);
  }
}
