import { DEFAULT_URL } from "../default-url.ts";
import { type HelpRow, renderExamples, renderGroups, wrapText } from "./help-page.ts";

/** Help of `SERVER_OPTIONS` of `connect-options.ts`. */
const SERVER_ROWS: readonly HelpRow[] = [
  ["--connect URL", "server URL (default: PROCWIRE_CONNECT)"],
  ["--token-file PATH", "file with the bearer token (default: the token in PROCWIRE_TOKEN)"],
  ["--tls-ca FILE", "additional CA certificates for wss://"],
  ["--tls-cert FILE", "certificate of this client for wss://; requires --tls-key"],
  ["--tls-key FILE", "key of the certificate; requires --tls-cert"],
  ["--insecure-plain-token", "allow sending the token to another host over plain ws://"],
  ["--wait SECONDS", "maximum time to wait until the server starts"],
];

/** Help of the options that only `CONNECT_OPTIONS` has. */
const CONNECT_ROWS: readonly HelpRow[] = [
  ["--session ID", "resume this session instead of opening a new one"],
  ["--install", "install this procwire on an ssh:// or docker:// host that has none, after confirmation"],
  ["--install-from PATH", "package, or directory of packages, for that host; requires --install"],
  ["--yes", "install without confirmation; requires --install"],
];

const URL_ROWS: readonly HelpRow[] = [
  ["ws://HOST:PORT", "WebSocket server; wss:// with TLS"],
  ["unix:///PATH", "server on a Unix socket of this host"],
  ["ssh://[USER@]HOST[:PORT][/SOCKET]", "server of that user on that host, or on that socket; starts on demand"],
  ["docker://[USER@]CONTAINER[/SOCKET]", "server in a running container; starts on demand"],
  ["exec:COMMAND", "stdin and stdout of a command, such as `exec:kubectl exec -i pod -- procwire connect`"],
  ["local", "this host, if PROCWIRE_CONNECT names a server"],
];

/** Returns `procwire help connect`: the page of the connection options, which many commands have. */
export function connectHelp(): string {
  const sections = [
    "Connection options of all commands that use a server",
    wrapText(
      `\`run\`, \`record\`, \`exec\`, \`mcp\` and \`fanout\` use this host unless a server is given. \`run --detach\` and all
      other commands connect to ${DEFAULT_URL}, where \`procwire start\` serves.`,
    ),
    renderGroups({
      Connection: SERVER_ROWS,
      "Sessions and installation, except exec, mcp and fanout": CONNECT_ROWS,
      "Server URLs": URL_ROWS,
      Variables: [
        ["PROCWIRE_CONNECT", "server URL if --connect is absent"],
        ["PROCWIRE_TOKEN", "bearer token if --token-file is absent"],
      ],
    }),
    renderExamples([
      [
        "procwire run --connect ssh://build-host -- make test",
        "a host that ssh reaches; procwire serves there on demand",
      ],
      ["procwire ps --connect wss://build.example:7070 --token-file token", "a server with a certificate and a token"],
      ["procwire run --connect ssh://build-host --install -- uname -a", "a host that has no procwire yet"],
    ]),
    "The command `procwire connect`: see `procwire connect --help`.",
  ];
  return `${sections.join("\n\n")}\n`;
}
