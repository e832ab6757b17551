/** What `--connect`, PROCWIRE_CONNECT and the library take for a server's address, read in this one place. */

/** How a server is reached: by a socket, or by a program whose stdio ends in `procwire connect` there. */
export type ServerTarget =
  | { type: "socket"; url: string }
  | {
      type: "pipe";
      /** As it was given: what errors call it. */
      url: string;
      /** The program and its arguments. */
      argv: string[];
      /** The same for a connection that replaces a lost one, when nobody can be asked for a password. */
      againArgv: string[];
      /** Runs a shell's script there, which has no single quote in it; null where only the command itself knows the way. */
      scriptArgv: ((script: string) => string[]) | null;
    };

const EXPECTED =
  "`ws://HOST:PORT`, `wss://HOST:PORT`, `unix:///PATH`, `ssh://[USER@]HOST[:PORT][/SOCKET]`, `docker://CONTAINER[/SOCKET]` or `exec:COMMAND`";

/** An address that no client could use; the message says what would be right. */
export class ConnectUrlError extends Error {
  override readonly name = "ConnectUrlError";

  constructor(text: string, hint = "") {
    const expected = hint.startsWith("expected") ? hint : `expected ${EXPECTED}`;
    super(
      `unsupported server URL \`${text}\`; ${expected}${hint === "" || hint === expected ? "" : `; ${hint}`}`,
    );
  }
}

/** Throws a ConnectUrlError for what is no server's address. `HOST:PORT` is taken for `ws://HOST:PORT`. */
export function parseConnectUrl(text: string): ServerTarget {
  const colon = text.indexOf(":");
  const scheme = colon < 0 ? "" : text.slice(0, colon).toLowerCase();
  switch (scheme) {
    case "ws":
    case "wss":
      return { type: "socket", url: checkedWebSocketUrl(text) };
    case "unix":
      if (!/^unix:\/\/\/./i.test(text)) throw new ConnectUrlError(text, "expected `unix:///PATH`");
      return { type: "socket", url: `unix://${text.slice("unix://".length)}` };
    case "ssh":
      return sshTarget(text);
    case "docker":
      return dockerTarget(text);
    case "exec":
      return execTarget(text);
    case "http":
    case "https":
      throw new ConnectUrlError(text, `did you mean \`ws${text.slice("http".length)}\`?`);
  }
  if (HOST_AND_PORT.test(text)) return { type: "socket", url: checkedWebSocketUrl(`ws://${text}`) };
  if (text.startsWith("/")) throw new ConnectUrlError(text, `did you mean \`unix://${text}\`?`);
  if (/^[\w.-]+$/.test(text))
    throw new ConnectUrlError(text, `did you mean \`ssh://${text}\`, or a port: \`${text}:7070\`?`);
  throw new ConnectUrlError(text);
}

/** `localhost:7070`, `10.1.2.3:7070` or `[::1]:7070`. */
const HOST_AND_PORT = /^(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}\/?$/;

function checkedWebSocketUrl(text: string): string {
  const url = URL.parse(text);
  if (!url || url.hostname === "")
    throw new ConnectUrlError(text, "expected `ws://HOST:PORT` or `wss://HOST:PORT`");
  return text;
}

/**
 * An ssh that asks nobody anything, for the connections after the first: keys are passed on to the program then, and would
 * be taken for a password.
 */
const ASK_NOBODY = ["-o", "BatchMode=yes"];
const SSH_URL = /^ssh:\/\/(?:([^@/]+)@)?(\[[^\]/]+\]|[^:@/[\]]+)(?::(\d{1,5}))?(\/.*)?$/i;

function sshTarget(url: string): ServerTarget {
  const [, user, host, port, path] = SSH_URL.exec(url) ?? [];
  const expected = "expected `ssh://[USER@]HOST[:PORT][/SOCKET]`";
  if (host === undefined) throw new ConnectUrlError(url, expected);
  // They would be taken for options.
  if (host.startsWith("-") || user?.startsWith("-")) throw new ConnectUrlError(url, expected);
  if (user?.includes(":"))
    throw new ConnectUrlError(url, "a password does not belong in an address; ssh asks for it");
  const name = host.replace(/^\[|\]$/g, "");
  const to = [
    ...(port === undefined ? [] : ["-p", port]),
    ...(user === undefined ? [] : ["-l", decoded(url, user)]),
    // What follows is the host and one command for its login shell, whatever they look like.
    "--",
    name,
  ];
  const ssh = (script: string, ...options: string[]) => [
    ...["ssh", "-T", ...options, ...to],
    `exec sh -c '${script}'`,
  ];
  const script = farScript(socketPath(url, path));
  return {
    type: "pipe",
    url,
    argv: unInterrupted(ssh(script)),
    againArgv: unInterrupted(ssh(script, ...ASK_NOBODY)),
    // Compressed: it is for much on stdin.
    scriptArgv: (given) => ssh(given, "-C"),
  };
}

const DOCKER_URL = /^docker:\/\/(?:([^@/]+)@)?([A-Za-z0-9][\w.-]*)(\/.*)?$/i;

function dockerTarget(url: string): ServerTarget {
  const [, user, container, path] = DOCKER_URL.exec(url) ?? [];
  if (container === undefined || user?.startsWith("-"))
    throw new ConnectUrlError(url, "expected `docker://[USER@]CONTAINER[/SOCKET]`");
  const script = farScript(socketPath(url, path));
  const as = user === undefined ? [] : ["-u", decoded(url, user)];
  const scriptArgv = (given: string) => ["docker", "exec", "-i", ...as, container, "sh", "-c", given];
  const argv = unInterrupted(scriptArgv(script));
  return { type: "pipe", url, argv, againArgv: argv, scriptArgv };
}

function execTarget(url: string): ServerTarget {
  const command = url.slice("exec:".length).trim();
  if (command === "")
    throw new ConnectUrlError(
      url,
      "expected `exec:COMMAND`, a shell's command that ends in `procwire connect`",
    );
  const argv = ["/bin/sh", "-c", `${UNINTERRUPTED}\n${command}`];
  return { type: "pipe", url, argv, againArgv: argv, scriptArgv: null };
}

/** The interrupt key is for the program that runs far away, and must not end the way to it. */
const UNINTERRUPTED = 'trap "" INT QUIT';

function unInterrupted(argv: string[]): string[] {
  return ["/bin/sh", "-c", `${UNINTERRUPTED}; exec "$@"`, "sh", ...argv];
}

/** Where `--install` puts procwire on a far host, below the user's home. */
export const INSTALLED_BELOW_HOME = ".local/share/procwire";
/** What the far end says, and nothing else before the bytes of its server: a login shell may have said something. */
export const GREETING = "procwire-connect 1";
export const MISSING = "procwire-connect missing";

/**
 * Finds procwire on a far host and becomes its bridge. No single quote may be in it: it stands in some within a command for
 * whatever shell the user has there.
 */
function farScript(socket: string | null): string {
  const to = socket === null ? "" : ` "unix://${socket}"`;
  return [
    `for p in procwire "$HOME/${INSTALLED_BELOW_HOME}/bin/procwire" "$HOME/.local/bin/procwire"`,
    `do command -v "$p" >/dev/null 2>&1 && exec "$p" connect${to}`,
    "done",
    // The C library by what its own tool says, else by the loaders that are there: a host may have both.
    'c=$(ldd --version 2>&1); case "$c" in *musl*) c=musl;; *GNU*|*GLIBC*) c=glibc;; *) c=unknown; for f in /lib/ld-musl-*; do [ -e "$f" ] && c=musl; done; for f in /lib/ld-linux* /lib64/ld-linux*; do [ -e "$f" ] && c=glibc; done;; esac',
    "n=$(node --version 2>/dev/null)",
    // On a line of its own, whatever a login shell has said.
    `echo; echo ${MISSING} $(uname -sm) $c \${n:-none}`,
    "exit 127",
  ].join("; ");
}

/** The path of a URL that is a socket's on the far host; null where there is none. */
function socketPath(url: string, path: string | undefined): string | null {
  if (path === undefined || path === "/") return null;
  const socket = decoded(url, path);
  // It stands in double quotes within single ones.
  if (!/^[\w./@:+,%=~ -]+$/.test(socket))
    throw new ConnectUrlError(url, "the path of a socket may have only letters, digits and ./_@:+,%=~- here");
  return socket;
}

function decoded(url: string, part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new ConnectUrlError(
      url,
      `\`${part}\` is not a part of a URL: a percent sign must be followed by two hexadecimal digits`,
    );
  }
}
