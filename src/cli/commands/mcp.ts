import { userMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import { makeProcessPrivate } from "../../host/native-support.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { sandboxChoiceFor } from "../../tools/policy/sandbox-mode.ts";
import type { Tool } from "../../tools/tool.ts";
import { VERSION } from "../../version.ts";
import { type Command, defineCommand } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { AUDIT_OPTIONS, AUDIT_ROWS, approvalPolicy, auditApprovals } from "../options/approval-options.ts";
import { resolveServerUrl, SERVER_OPTIONS } from "../options/connect-options.ts";
import { credentialsFromFlags } from "../options/credential-options.ts";
import { ENVIRONMENT_OPTIONS, ENVIRONMENT_ROWS, secretFilterFromFlags } from "../options/environment-options.ts";
import { ATTACHABLE_OPTIONS, hostFromFlags, parseSandbox, requireHiddenSecrets } from "../options/host-options.ts";
import {
  HTTP_OPTIONS,
  HTTP_ROWS,
  type McpHttpListenOptions,
  parseMcpHttpOptions,
  unsandboxedOnly,
} from "../options/mcp-http-options.ts";
import {
  asksAboutNetwork,
  NETWORK_ROWS,
  networkFromFlags,
  parseNetworkFlag,
  SANDBOX_OPTIONS,
} from "../options/network-options.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Serves exec_command, write_stdin, wait_for, kill_session, list_sessions, read_output and read_screen to an MCP
    client on stdio, or to many clients over HTTP. Exec sessions continue between calls, on this host or on a server.`,
  options: {
    Commands: [
      ["--cwd DIR", "working directory (default: current directory, or that of the server)"],
      ["--shell PATH", "shell that runs the commands (default: shell of the host)"],
      ...ENVIRONMENT_ROWS,
      [
        "--attachable",
        "let users attach to the terminals, for example to type a password; adds the tool handoff_to_user (default: on with --connect)",
      ],
    ],
    "Sandbox and approval": [
      [
        "--sandbox MODE",
        "none, read-only, or workspace-write: only --cwd, --writable and /tmp are writable (default: none)",
      ],
      ["--writable DIR", "additional writable directory; repeatable"],
      ...NETWORK_ROWS,
      ["--rules FILE", "rules that allow, refuse or ask before a command; without --ask, ask means refuse"],
      [
        "--ask",
        "ask the user of the client (MCP elicitation) before a command runs unsandboxed, or, with --rules, where the rules say ask; refuses if the client does not support elicitation",
      ],
      ...AUDIT_ROWS,
    ],
    HTTP: HTTP_ROWS,
  },
  connection: true,
  examples: [
    ["codex mcp add shell -- procwire mcp --sandbox workspace-write", "add the tools to an MCP client"],
    ["procwire mcp --connect ssh://build-host --cwd /srv/app", "commands run on another host"],
    ["procwire mcp --http 127.0.0.1:7071 --ws-auth auto", "serve many clients over HTTP"],
  ],
};

export const command: Command = defineCommand("mcp", HELP, {
  options: {
    ...HTTP_OPTIONS,
    ...ENVIRONMENT_OPTIONS,
    ...SERVER_OPTIONS,
    ...ATTACHABLE_OPTIONS,
    cwd: { type: "string" },
    shell: { type: "string" },
    ...SANDBOX_OPTIONS,
    ask: { type: "boolean" },
    ...AUDIT_OPTIONS,
  },
  takesArguments: false,

  async run(values) {
    const httpListen = values.http === undefined ? null : parseMcpHttpOptions(values);
    const secretFilter = secretFilterFromFlags("mcp", values);
    const mode = parseSandbox(values.sandbox);
    const networkWords = parseNetworkFlag(values.network, mode);
    const url = resolveServerUrl(values.connect);
    const { askCaller } = await import("../../tools/policy/ask-caller.ts");
    using audited = await auditApprovals(
      await approvalPolicy(
        values.rules,
        values.ask ? askCaller() : undefined,
        asksAboutNetwork(networkWords) ? askCaller() : undefined,
      ),
      values,
    );
    const approval = audited.policyFor();
    const credentials = credentialsFromFlags(values.credential, approval, { isLocal: url === undefined });
    const network = networkFromFlags(networkWords, approval, mode, credentials);
    // A server on a TCP port of this host must be able to identify this process, because it rejects sandboxed clients.
    if (!url?.startsWith("ws")) makeProcessPrivate();
    const secretFlags = { ...httpListen?.secretFlags, ...audited.secretFlags };
    const secrets = { values, secretFlags, credentials: credentials.definitions };
    await requireHiddenSecrets(url, { ...secrets, sandbox: mode });
    const unconnected = hostFromFlags(url, {
      ...secrets,
      cwd: values.cwd,
      secretFilter,
      reopens: true,
      attachable: values.attachable,
    });
    const host = await unconnected.connect();
    await using opened = new AsyncDisposableStack();
    opened.defer(() => host.close());
    const cwd = host.realPath(host.cwd);
    const writable = [cwd, ...(values.writable ?? []).map(host.realPath)];
    const { createUnifiedExec } = await import("../../tools/unified-exec.ts");
    const sandbox = sandboxChoiceFor(mode, writable, { network, sharedTmp: true });
    const openTools = (principal?: string) =>
      opened.use(
        createUnifiedExec({
          backend: host.backend,
          hostSandboxes: host.sandboxes,
          cwd,
          sandbox,
          shell: values.shell ?? host.shell ?? (process.env.SHELL || "/bin/bash"),
          approval: audited.policyFor(principal),
          reopenCount: () => host.reopenCount(),
          attachUrl: host.attachUrl,
          onError: report,
        }),
      ).tools;
    // Without the network a sandboxed process cannot connect.
    const isReachable = sandbox.type !== "none" && sandbox.network !== false;
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
  { notices, host, port, authenticate, watchFiles }: McpHttpListenOptions,
  toolsFor: (principal: string) => readonly Tool[],
): Promise<void> {
  const { serveMcpHttp } = await import("../../tools/mcp/mcp-http.ts");
  using watcher = watchFiles((_, message) => report(message));
  const reload = () => void watcher?.reload();
  if (watcher) process.on("SIGHUP", reload);
  const stopped = watcher ? whenInterrupted("SIGINT", "SIGTERM") : whenInterrupted();
  const serving = await serveMcpHttp({ ...SERVER, host, port, authenticate, toolsFor });
  for (const notice of notices) process.stderr.write(`procwire mcp: ${notice}\n`);
  process.stdout.write(`${serving.url}\n`);
  await stopped;
  process.off("SIGHUP", reload);
  await serving.close();
}

/** Prints an error on stderr, because stdout carries the protocol. */
function report(error: unknown): void {
  const message = userMessage(error);
  standardStream(2).write(`procwire mcp: ${printableText(message)}\n`);
}

function whenInterrupted(...signals: NodeJS.Signals[]): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of signals.length > 0 ? signals : DEFAULT_SIGNALS) process.once(signal, () => resolve());
  });
}

const DEFAULT_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
