import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/printable-text.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import type { SandboxChoice } from "../../tools/policy/sandbox-choice.ts";
import { SANDBOX_MODES, sandboxChoiceFor } from "../../tools/policy/sandbox-mode.ts";
import type { Tool } from "../../tools/tool.ts";
import { VERSION } from "../../version.ts";
import { type Command, UsageError } from "../command.ts";
import { approvalPolicy } from "../options/approval-options.ts";
import { resolveServerUrl, SERVER_HELP, SERVER_OPTIONS } from "../options/connect-options.ts";
import { ENVIRONMENT_OPTIONS, secretFilterFromFlags } from "../options/environment-options.ts";
import { ATTACHABLE_OPTIONS, hostFromFlags } from "../options/host-options.ts";
import {
  HTTP_HELP,
  HTTP_OPTIONS,
  type McpHttpListenOptions,
  parseMcpHttpOptions,
  unsandboxedOnly,
} from "../options/mcp-http-options.ts";
import { parseOptions } from "../options/parse-options.ts";

const HELP = `Usage: procwire mcp [options]

Serves the tools for models (exec_command, write_stdin, wait_for, kill_session, list_sessions, read_output,
read_screen) to an MCP client on stdin and stdout, or to many over HTTP, so that it has terminals that live on between calls, here or on a
server.

${SERVER_HELP}  --cwd DIR          where commands run; default: here, or where the server runs
  --shell PATH       the shell that runs them; default: the host's
  --sandbox MODE     none (default), read-only, or workspace-write: only --cwd and --writable can be written
  --writable DIR     can be written as well; may be repeated
  --network on|off   for a sandbox; default: off
  --inherit-env NAME pass a variable on although it looks like a secret; may be repeated
  --verbose          say on stderr which variables were left out as secrets
  --rules FILE       which commands may run; what it would ask about is refused, unless there is --ask
  --ask              ask the client's user (by elicitation) before a command runs without a sandbox, or, with --rules,
                     where the rules say ask; refused when the client offers no elicitation
  --attachable       let a user attach to the terminals (\`procwire attach\`), for example to type a password; adds the tool
                     handoff_to_user. Always on with --connect
${HTTP_HELP}`;

const OPTIONS = {
  ...HTTP_OPTIONS,
  ...ENVIRONMENT_OPTIONS,
  ...SERVER_OPTIONS,
  ...ATTACHABLE_OPTIONS,
  cwd: { type: "string" },
  shell: { type: "string" },
  sandbox: { type: "string", default: "none" },
  writable: { type: "string", multiple: true },
  network: { type: "string", default: "off" },
  rules: { type: "string" },
  ask: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

export const command: Command = {
  name: "mcp",
  summary: "serve the tools for models over MCP",

  async run(argv) {
    const { values } = parseOptions({ args: argv, options: OPTIONS });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    const place = values.http === undefined ? null : parseMcpHttpOptions(values);
    const secretFilter = secretFilterFromFlags("mcp", values);
    const named = hostFromFlags(resolveServerUrl(values.connect), {
      ...{ cwd: values.cwd, values, secretFilter, reopens: true },
      attachable: values.attachable,
      secretFiles: place?.secretFiles,
    });
    const host = await named.connect();
    await using opened = new AsyncDisposableStack();
    opened.defer(() => host.close());
    const cwd = host.realPath(host.cwd);
    const writable = [cwd, ...(values.writable ?? []).map(host.realPath)];
    const sandbox = sandboxChoice(values.sandbox, writable, values.network);
    const [{ createUnifiedExec }, { askCaller }] = await Promise.all([
      import("../../tools/unified-exec.ts"),
      import("../../tools/policy/ask-caller.ts"),
    ]);
    const approval = await approvalPolicy(values.rules, values.ask ? askCaller() : undefined);
    const openTools = () =>
      opened.use(
        createUnifiedExec({
          backend: host.backend,
          hostSandboxes: host.sandboxes,
          cwd,
          sandbox,
          shell: values.shell ?? host.shell ?? (process.env.SHELL || "/bin/bash"),
          approval,
          reopenCount: () => host.reopenCount(),
          attachUrl: host.attachUrl,
          onError: report,
        }),
      ).tools;
    // Without the network a sandboxed process cannot connect.
    const isReachable = sandbox.type !== "none" && sandbox.network;
    if (place && isReachable) place.authenticate = unsandboxedOnly(place.authenticate, host.isSandboxedPeer);
    if (place) await serveHttp(place, openTools);
    else await serveStdio(openTools());
    return 0;
  },
};

const SERVER = { name: "procwire", version: VERSION, onError: report };

async function serveStdio(tools: readonly Tool[]): Promise<void> {
  const { serveMcp } = await import("../../tools/mcp/mcp-server.ts");
  const serving = await serveMcp({ ...SERVER, tools });
  await Promise.race([serving.closed, whenInterrupted()]);
  await serving.close();
}

/** The URL is alone on stdout, for the program that started this one to read. */
async function serveHttp(
  { notices, host, port, authenticate }: McpHttpListenOptions,
  toolsFor: () => readonly Tool[],
): Promise<void> {
  const { serveMcpHttp } = await import("../../tools/mcp/mcp-http.ts");
  const stopped = whenInterrupted();
  const serving = await serveMcpHttp({ ...SERVER, host, port, authenticate, toolsFor });
  for (const notice of notices) process.stderr.write(`procwire mcp: ${notice}\n`);
  process.stdout.write(`${serving.url}\n`);
  await stopped;
  await serving.close();
}

function sandboxChoice(mode: string, writable: string[], network: string): SandboxChoice {
  if (network !== "on" && network !== "off")
    throw new UsageError(`--network \`${network}\` must be on or off`);
  const known = SANDBOX_MODES.find((candidate) => candidate === mode);
  if (known === undefined)
    throw new UsageError(`--sandbox \`${mode}\` must be none, read-only or workspace-write`);
  return sandboxChoiceFor(known, writable, { network: network === "on", sharedTmp: true });
}

/** Stdout is the wire, so everything else goes to stderr. */
function report(error: unknown): void {
  const message = errorMessage(error);
  standardStream(2).write(`procwire mcp: ${printableText(message)}\n`);
}

function whenInterrupted(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => resolve());
  });
}
