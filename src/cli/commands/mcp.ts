import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/printable-text.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import type { SandboxChoice } from "../../tools/policy/sandbox-choice.ts";
import { SANDBOX_MODES, sandboxChoiceFor } from "../../tools/policy/sandbox-mode.ts";
import type { Tool } from "../../tools/tool.ts";
import { VERSION } from "../../version.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
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

const HELP = `Usage: procwire mcp [OPTIONS]

Serve the tools for models (exec_command, write_stdin, wait_for, kill_session, list_sessions, read_output, read_screen) to
an MCP client on stdio, or to many clients over HTTP. Terminals survive between calls, on this host or on a server.

Commands:
  --cwd DIR           working directory (default: current directory, or that of the server)
  --shell PATH        shell that runs the commands (default: shell of the host)
  --inherit-env NAME  pass on a variable that looks like a secret; repeatable
  --verbose           print on stderr the names of variables that were removed as secrets
  --attachable        let users attach to the terminals, for example to type a password; adds the tool handoff_to_user
                      (default: on with --connect)

Sandbox and approval:
  --sandbox MODE      none, read-only, or workspace-write: only --cwd and --writable are writable (default: none)
  --writable DIR      additional writable directory; repeatable
  --network on|off    network of sandboxed commands (default: off)
  --rules FILE        rules that allow, reject or ask before a command; without --ask, ask means reject
  --ask               ask the user of the client (MCP elicitation) before a command runs unsandboxed, or, with --rules,
                      where the rules say ask; rejects if the client does not support elicitation

${HTTP_HELP}
${SERVER_HELP}`;

export const command: Command = defineCommand({
  help: HELP,
  options: {
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
  },
  takesArguments: false,

  async run(values) {
    const httpListen = values.http === undefined ? null : parseMcpHttpOptions(values);
    const secretFilter = secretFilterFromFlags("mcp", values);
    const unconnected = hostFromFlags(resolveServerUrl(values.connect), {
      cwd: values.cwd,
      values,
      secretFilter,
      reopens: true,
      attachable: values.attachable,
      secretFiles: httpListen?.secretFiles,
    });
    const host = await unconnected.connect();
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
    if (httpListen && isReachable)
      httpListen.authenticate = unsandboxedOnly(httpListen.authenticate, host.isSandboxedPeer);
    if (httpListen) await serveHttp(httpListen, openTools);
    else await serveStdio(openTools());
    return 0;
  },
});

const SERVER = { name: "procwire", version: VERSION, onError: report };

async function serveStdio(tools: readonly Tool[]): Promise<void> {
  const { serveMcp } = await import("../../tools/mcp/mcp-server.ts");
  const serving = await serveMcp({ ...SERVER, tools });
  await Promise.race([serving.closed, whenInterrupted()]);
  await serving.close();
}

/** Prints only the URL on stdout, so that the parent process can read it. */
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
  if (network !== "on" && network !== "off") throw new UsageError(`--network \`${network}\` must be on or off`);
  const known = SANDBOX_MODES.find((candidate) => candidate === mode);
  if (known === undefined) throw new UsageError(`--sandbox \`${mode}\` must be none, read-only or workspace-write`);
  return sandboxChoiceFor(known, writable, { network: network === "on", sharedTmp: true });
}

/** Prints an error on stderr, because stdout carries the protocol. */
function report(error: unknown): void {
  const message = errorMessage(error);
  standardStream(2).write(`procwire mcp: ${printableText(message)}\n`);
}

function whenInterrupted(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => resolve());
  });
}
