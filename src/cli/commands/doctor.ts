import { userMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import { createLocalBackend } from "../../host/create-local-backend.ts";
import { landlockVersion } from "../../host/native-support.ts";
import { type Controller, createCgroup } from "../../local/tree/cgroups.ts";
import { loadAddon } from "../../native/load-addon.ts";
import { nativeFileCandidates } from "../../native/native-files.ts";
import { LANDLOCK_FILES_ABI, LANDLOCK_SCOPES_ABI } from "../../sandbox/landlock-rules.ts";
import { availableSandboxes, BUBBLEWRAP } from "../../sandbox/sandbox-probe.ts";
import { type Command, defineCommand } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";

const HELP: HelpPage = {
  usage: ["[--json]"],
  details: "Checks each part that procwire uses on this host. Exits with 1 if a required part is missing.",
  options: { Output: [["--json", "print one JSON object per line"]] },
  examples: [
    ["procwire doctor", "check this host"],
    ["procwire doctor --json", "for programs"],
    ["procwire run --connect ssh://build-host -- procwire doctor", "check another host"],
  ],
  exitCodes: "0 all required parts work, 1 a required part is missing",
};

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

export const command: Command = defineCommand("doctor", HELP, {
  options: { json: { type: "boolean" } },
  takesArguments: false,

  async run(values) {
    const results = [
      checkNode(),
      checkAddon(),
      await checkTerminals(),
      checkWatchdog(),
      checkBubblewrap(),
      checkLandlock(),
    ];
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
    return failed(name, userMessage(error), fix);
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

function checkLandlock(): CheckResult {
  const name = "landlock";
  const abi = landlockVersion();
  const fix = "use Linux 6.12 or newer with `landlock` in its `lsm=` list; the sandbox works without it";
  if (abi === null) return failed(name, "missing or disabled", fix);
  if (abi >= LANDLOCK_SCOPES_ABI)
    return passed(name, `version ${abi}: rules for files, abstract sockets and signals of sandboxed commands`);
  const limit = abi >= LANDLOCK_FILES_ABI ? "abstract sockets" : "files and abstract sockets";
  return failed(name, `version ${abi} cannot restrict ${limit}`, fix);
}

/** Checks a limit of process trees with a value that every host accepts. */
function checkCgroup(controller: Controller, limit: string, value: number): CheckResult {
  const name = `cgroup ${controller}`;
  try {
    createCgroup(controller, value).remove();
    return passed(name, `the limit ${limit} is enforced`);
  } catch (error) {
    const fix = `run as root, or with a delegated cgroup (systemd: Delegate=yes); until then the server rejects the limit ${limit}`;
    return failed(name, userMessage(error), fix);
  }
}
