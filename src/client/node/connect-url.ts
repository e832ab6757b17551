/** Parser of server addresses, as in `--connect`, PROCWIRE_CONNECT and the library. */

/** Transport to a server: a socket, or the stdio of a command that runs `procwire connect` on the host. */
export type ServerTarget =
  | { type: "socket"; url: string }
  | {
      type: "pipe";
      /** The address as given, for error messages. */
      url: string;
      /** The command and its arguments. */
      argv: string[];
      /** The command for a reconnect, when no user can enter a password. */
      reconnectArgv: string[];
      /**
       * Returns the command that runs a shell script on the host; the script must not contain single quotes. Null for
       * `exec:`.
       */
      scriptArgv: ((script: string) => string[]) | null;
    };

const EXPECTED =
  "`ws://HOST:PORT`, `wss://HOST:PORT`, `unix:///PATH`, `ssh://[USER@]HOST[:PORT][/SOCKET]`, `docker://[USER@]CONTAINER[/SOCKET]` or `exec:COMMAND`";

/** An invalid address; the message contains the expected form. */
export class ConnectUrlError extends Error {
  override readonly name = "ConnectUrlError";
  /** The message without its subject. */
  readonly problem: string;

  /** `expected` is the form of addresses of this kind; default: all forms. */
  constructor(text: string, { expected = EXPECTED, hint }: { expected?: string; hint?: string } = {}) {
    const problem = `\`${text}\`; expected ${expected}${hint === undefined ? "" : `; ${hint}`}`;
    super(`unsupported server URL ${problem}`);
    this.problem = problem;
  }
}

/** Parses a server address; throws a ConnectUrlError if it is invalid. `HOST:PORT` means `ws://HOST:PORT`. */
export function parseConnectUrl(text: string): ServerTarget {
  const colon = text.indexOf(":");
  const scheme = colon < 0 ? "" : text.slice(0, colon).toLowerCase();
  switch (scheme) {
    case "ws":
    case "wss":
      return { type: "socket", url: checkWebSocketUrl(text) };
    case "unix":
      if (!/^unix:\/\/\/./i.test(text)) throw new ConnectUrlError(text, { expected: "`unix:///PATH`" });
      return { type: "socket", url: `unix://${text.slice("unix://".length)}` };
    case "ssh":
      return sshTarget(text);
    case "docker":
      return dockerTarget(text);
    case "exec":
      return execTarget(text);
    case "http":
    case "https":
      throw new ConnectUrlError(text, { hint: `did you mean \`ws${text.slice("http".length)}\`?` });
  }
  if (HOST_AND_PORT.test(text)) return { type: "socket", url: checkWebSocketUrl(`ws://${text}`) };
  if (text.startsWith("/")) throw new ConnectUrlError(text, { hint: `did you mean \`unix://${text}\`?` });
  if (/^[\w.-]+$/.test(text))
    throw new ConnectUrlError(text, { hint: `did you mean \`ssh://${text}\`, or a port: \`${text}:7070\`?` });
  throw new ConnectUrlError(text);
}

/** Matches `localhost:7070`, `10.1.2.3:7070` or `[::1]:7070`. */
const HOST_AND_PORT = /^(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}\/?$/;

function checkWebSocketUrl(text: string): string {
  const url = URL.parse(text);
  if (!url || url.hostname === "")
    throw new ConnectUrlError(text, { expected: "`ws://HOST:PORT` or `wss://HOST:PORT`" });
  return text;
}

/** Disables ssh prompts on a reconnect: input then goes to the process and would be read as a password. */
const NO_PROMPTS = ["-o", "BatchMode=yes"];
/**
 * Makes AES-GCM the first cipher on a processor with AES instructions if ssh would select ChaCha20 by default, because
 * it takes a third of the processor time. Any other order is the choice of the user's ssh_config and stays.
 */
const PREFER_AES = [
  "if grep -qsw aes /proc/cpuinfo",
  'then s=$1; shift; c=$("$s" -G "$@" 2>/dev/null </dev/null | sed -n "s/^ciphers //p")',
  'case "$c" in chacha20-poly1305@openssh.com,*aes128-gcm@openssh.com*) set -- -o "Ciphers=aes128-gcm@openssh.com,$c" "$@";; esac',
  'set -- "$s" "$@"; fi; ',
].join("; ");
const SSH_URL = /^ssh:\/\/(?:([^@/]+)@)?(\[[^\]/]+\]|[^:@/[\]]+)(?::(\d{1,5}))?(\/.*)?$/i;

function sshTarget(url: string): ServerTarget {
  const [, user, host, port, path] = SSH_URL.exec(url) ?? [];
  const expected = "`ssh://[USER@]HOST[:PORT][/SOCKET]`";
  if (host === undefined) throw new ConnectUrlError(url, { expected });
  // ssh would parse a leading dash as an option.
  if (host.startsWith("-") || user?.startsWith("-")) throw new ConnectUrlError(url, { expected });
  if (user?.includes(":"))
    throw new ConnectUrlError(url, { hint: "passwords are not allowed in the URL; ssh prompts for it" });
  const name = host.replace(/^\[|\]$/g, "");
  const to = [
    ...(port === undefined ? [] : ["-p", port]),
    ...(user === undefined ? [] : ["-l", decodePart(url, user)]),
    // `--` ends the options: the host and one command for its login shell follow.
    "--",
    name,
  ];
  const ssh = (script: string, ...options: string[]) => [...["ssh", "-T", ...options, ...to], `exec sh -c '${script}'`];
  const script = remoteScript(socketPath(url, path));
  return {
    type: "pipe",
    url,
    argv: ignoreInterrupt(ssh(script), PREFER_AES),
    reconnectArgv: ignoreInterrupt(ssh(script, ...NO_PROMPTS), PREFER_AES),
    // Compressed, because the script reads much data from stdin.
    scriptArgv: (script) => ssh(script, "-C"),
  };
}

const DOCKER_URL = /^docker:\/\/(?:([^@/]+)@)?([A-Za-z0-9][\w.-]*)(\/.*)?$/i;

function dockerTarget(url: string): ServerTarget {
  const [, user, container, path] = DOCKER_URL.exec(url) ?? [];
  if (container === undefined || user?.startsWith("-"))
    throw new ConnectUrlError(url, { expected: "`docker://[USER@]CONTAINER[/SOCKET]`" });
  const script = remoteScript(socketPath(url, path));
  const as = user === undefined ? [] : ["-u", decodePart(url, user)];
  const scriptArgv = (command: string) => ["docker", "exec", "-i", ...as, container, "sh", "-c", command];
  const argv = ignoreInterrupt(scriptArgv(script));
  return { type: "pipe", url, argv, reconnectArgv: argv, scriptArgv };
}

function execTarget(url: string): ServerTarget {
  const command = url.slice("exec:".length).trim();
  if (command === "")
    throw new ConnectUrlError(url, { expected: "`exec:COMMAND`, a shell's command that ends in `procwire connect`" });
  const argv = ["/bin/sh", "-c", `${IGNORE_INTERRUPT}\n${command}`];
  return { type: "pipe", url, argv, reconnectArgv: argv, scriptArgv: null };
}

/** The interrupt key is for the remote process and must not end the transport. */
const IGNORE_INTERRUPT = 'trap "" INT QUIT';

function ignoreInterrupt(argv: string[], prepare = ""): string[] {
  return ["/bin/sh", "-c", `${IGNORE_INTERRUPT}; ${prepare}exec "$@"`, "sh", ...argv];
}

/** Directory of `--install` on a remote host, below the user's home. */
export const REMOTE_INSTALL_DIRECTORY = ".local/share/procwire";
/** First line of the bridge, after which the server's bytes follow. A login shell may print text before it. */
export const BRIDGE_READY_LINE = "procwire-connect 1";
export const BRIDGE_MISSING_LINE = "procwire-connect missing";

/**
 * Returns a script that finds procwire on a remote host and replaces itself with its bridge. It must not contain
 * single quotes, because a command for the user's shell puts it in single quotes.
 */
function remoteScript(socket: string | null): string {
  const to = socket === null ? "" : ` "unix://${socket}"`;
  return [
    `for p in procwire "$HOME/${REMOTE_INSTALL_DIRECTORY}/bin/procwire" "$HOME/.local/bin/procwire"`,
    `do command -v "$p" >/dev/null 2>&1 && exec "$p" connect${to}`,
    "done",
    // Detects the C library by the output of ldd, otherwise by the installed loaders: a host may have both.
    'c=$(ldd --version 2>&1); case "$c" in *musl*) c=musl;; *GNU*|*GLIBC*) c=glibc;; *) c=unknown; for f in /lib/ld-musl-*; do [ -e "$f" ] && c=musl; done; for f in /lib/ld-linux* /lib64/ld-linux*; do [ -e "$f" ] && c=glibc; done;; esac',
    "n=$(node --version 2>/dev/null)",
    // On a separate line, after any output of the login shell.
    `echo; echo ${BRIDGE_MISSING_LINE} $(uname -sm) $c \${n:-none}`,
    "exit 127",
  ].join("; ");
}

/** Returns the socket path on the remote host; null if the URL has none. */
function socketPath(url: string, path: string | undefined): string | null {
  if (path === undefined || path === "/") return null;
  const socket = decodePart(url, path);
  // The script puts the path in double quotes, inside single quotes.
  if (!/^[\w./@:+,%=~ -]+$/.test(socket))
    throw new ConnectUrlError(url, { hint: "the socket path may contain only letters, digits and ./_@:+,%=~-" });
  return socket;
}

function decodePart(url: string, part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    const hint = `\`${part}\` is not valid in a URL: a percent sign must be followed by two hexadecimal digits`;
    throw new ConnectUrlError(url, { hint });
  }
}
