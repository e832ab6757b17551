import { spawn } from "node:child_process";
import { printableLine, printableText } from "../../../base/text/printable-text.ts";
import { type Command, UsageError } from "../../command.ts";
import type { HelpPage } from "../../help/help-page.ts";
import { requireServerUrl } from "../../options/connect-options.ts";
import { defineServerCommand, openClient } from "../../server-command.ts";
import { forceExit } from "../../support/forced-exit.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Prints a login URL of the server's web console. The URL works once, within 15 minutes, and signs the browser in with
    the rights of this command. The server must run with --web; \`procwire start\` does. For ssh://, docker:// and Unix
    sockets the command also forwards a port of this host to the console, until interrupted.`,
  options: {
    Console: [
      ["--open", "also open the URL in the default browser"],
      ["--port PORT", "port of this host for a forwarded console (default: a free one)"],
    ],
  },
  examples: [
    ["procwire console", "print a login URL of the server on this host"],
    ["procwire console --open", "open the console in the default browser"],
    ["procwire console --connect ssh://build.example --port 8080", "the console of another host"],
  ],
};

export const command: Command = defineServerCommand("console", HELP, {
  takesArguments: false,
  options: { open: { type: "boolean" }, port: { type: "string" } },

  async run(values) {
    const server = requireServerUrl(values.connect);
    const isDirect = /^wss?:/i.test(server);
    const port = parsePort(values.port);
    if (isDirect && port !== undefined)
      throw new UsageError("--port applies to a forwarded console; browsers reach this server themselves");
    await using client = await openClient(values, ({ type }) => {
      if (type === "reconnecting" && !isDirect) logLine("connection lost, reconnecting");
    });
    const login = await client.call("console/login", {});
    const fragment = printableLine(login.fragment);
    if (isDirect) {
      const { origin } = new URL(server.replace(/^ws/i, "http"));
      print(`${origin}/${fragment}`, values.open === true);
      return 0;
    }
    const { forwardConsole } = await import("../../../client/node/port-forward.ts");
    await using forwarded = await forwardConsole(client, { port: port ?? 0, onRefused: logLine });
    print(`http://127.0.0.1:${forwarded.port}/${fragment}`, values.open === true);
    logLine("forwards the console; Ctrl-C stops it");
    await new Promise<void>((resolve) => {
      for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
    });
    return forceExit(0);
  },
});

function parsePort(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,5}$/.test(text) && Number(text) <= 65_535) return Number(text);
  throw new UsageError(`--port \`${text}\` must be a port from 0 to 65535`);
}

function print(url: string, isOpened: boolean): void {
  process.stdout.write(`${url}\n`);
  if (isOpened) openInBrowser(url);
}

/** Opens a URL in the default browser. The URL is printed already, so a failure is only reported. */
function openInBrowser(url: string): void {
  const opener = process.env.BROWSER || (process.platform === "darwin" ? "open" : "xdg-open");
  const child = spawn(opener, [url], { detached: true, stdio: "ignore" });
  child.on("error", () => logLine(`cannot run \`${opener}\`; open the URL above yourself`));
  child.unref();
}

function logLine(text: string): void {
  process.stderr.write(`procwire console: ${printableText(text)}\n`);
}
