import { createHash } from "node:crypto";
import { once } from "node:events";
import path from "node:path";
import { userMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import type { CopyEndpoint, CopyFilesOptions, CopyResult } from "../../client/copy/copy-types.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { type Command, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { forceExit } from "../support/forced-exit.ts";
import { CopyProgress } from "../terminal/copy-progress.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] SOURCE... DESTINATION"],
  details: `A path on the server starts with a colon; a relative path is resolved against the working directory of the server.
    \`-\` is stdin or stdout.

    Each file is written atomically after its checksum is verified. Modes and times are preserved. A directory is copied as
    DESTINATION, or into it if DESTINATION ends with \`/\` or there are several sources. Running the same command again skips
    existing files and resumes an interrupted file.`,
  options: {
    Copying: [
      [
        "--links HOW",
        "symbolic links in a directory: keep, follow or skip; a SOURCE that is a link is followed (default: keep)",
      ],
      ["--checksum", "compare existing files by content instead of size and time"],
      ["-q, --quiet", "do not show progress"],
    ],
  },
  examples: [
    ["procwire cp app.tar :/srv/app.tar", "to the server"],
    ["procwire cp --checksum :/var/log/app ./logs", "a directory from the server"],
    ["tar c src | procwire cp - :/tmp/s.tar", "from a stream"],
  ],
  exitCodes: "0 all copied, 1 some not copied, 130 interrupted",
};

const INTERRUPTED = 130;

/** One SOURCE or DESTINATION argument. */
type CopyArgument = { type: "stream" } | { type: "local"; path: string } | { type: "remote"; path: string };

export const command: Command = defineServerCommand("cp", HELP, {
  options: {
    links: { type: "string" },
    checksum: { type: "boolean" },
    quiet: { type: "boolean", short: "q" },
  },

  async run(values, positionals) {
    const links = parseLinks(values.links);
    const { sources, destination } = parseArguments(positionals);
    const connecting = openClient(values);
    // Loaded while the connection opens; through ssh that takes longer.
    const modules = loadCopyModules();
    modules.catch(() => undefined);
    await using client = await connecting;
    const interrupted = new AbortController();
    const stop = () => interrupted.abort(new Error("interrupted"));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, stop);
    const progress = !values.quiet && process.stderr.isTTY ? new CopyProgress(process.stderr) : null;
    const partialFiles: string[] = [];
    const { signal } = interrupted;
    const options: CopyFilesOptions = {
      signal,
      links,
      checksum: values.checksum,
      onProgress: (totals) => progress?.update(totals),
      onPartialKept: (file) => partialFiles.push(file),
    };
    try {
      return forceExit(await copyAll(client, modules, sources, destination, options, progress));
    } catch (error) {
      progress?.clear();
      if (!signal.aborted) throw error;
      process.stderr.write("procwire cp: interrupted\n");
      return forceExit(INTERRUPTED);
    } finally {
      for (const file of partialFiles)
        process.stderr.write(
          `procwire cp: partial file kept in ${printableText(file)}; run the same command again to resume\n`,
        );
    }
  },
});

function loadCopyModules() {
  return Promise.all([import("../../host/local-environment.ts"), import("../../client/copy/copy-files.ts")]);
}

async function copyAll(
  client: ExecServerClient,
  modules: ReturnType<typeof loadCopyModules>,
  sources: CopyArgument[],
  destination: CopyArgument,
  options: CopyFilesOptions,
  progress: CopyProgress | null,
): Promise<number> {
  const cwd = client.backend.defaultCwd ?? "/";
  const base = /^file:/i.test(cwd) ? pathFromUri(cwd) : cwd;
  const resolveRemote = (remotePath: string) => path.posix.resolve(base, remotePath);
  const [only] = sources;
  if (only?.type === "stream" && destination.type === "remote")
    return copyStdin(
      await requireFile(client, resolveRemote(destination.path), "give the name of a file for stdin"),
      options,
    );
  if (only?.type === "remote" && destination.type === "stream")
    return copyToStdout(
      await requireFile(client, resolveRemote(only.path), "only a file can be written to stdout"),
      options,
    );

  const [{ Environment }, { copyFiles }] = await modules;
  await using local = await Environment.create(null);
  const endpointFor = (argument: CopyArgument, name = ""): CopyEndpoint => {
    if (argument.type === "stream")
      throw new UsageError("stdin and stdout (`-`) require one path on the server, such as `:/tmp/file`");
    return argument.type === "remote"
      ? { files: client.files, path: resolveRemote(`${argument.path}/${name}`) }
      : { files: local.files, path: path.resolve(argument.path, name) };
  };
  const isCopyInto = sources.length > 1 || namesDirectory(destination);
  let code = 0;
  for (const source of sources) {
    const from = endpointFor(source);
    const whole = endpointFor(destination);
    // A directory is copied as the destination, so that the same command resumes it. A file is copied into a directory.
    const into = isCopyInto || ((await isDirectory(whole)) && !(await isDirectory(from)));
    if (into) await whole.files.createDirectory(whole.path);
    const name = path.posix.basename(from.path);
    const to = into ? { ...endpointFor(destination, name), within: whole.path } : whole;
    const result = await copyFiles(from, to, options);
    progress?.finish(result);
    if (!reportProblems(result)) code = 1;
  }
  return code;
}

function reportProblems({ problems }: CopyResult): boolean {
  for (const { path: file, message } of problems)
    process.stderr.write(`procwire cp: ${printableText(`${file}: ${userMessage(message)}`)}\n`);
  return problems.length === 0;
}

async function copyStdin(target: CopyEndpoint, { signal }: CopyFilesOptions): Promise<number> {
  const { copyStreamToFile } = await import("../../client/copy/stream-copy.ts");
  await copyStreamToFile(process.stdin, target, { signal, digest: createHash("sha256") });
  return 0;
}

async function copyToStdout(source: CopyEndpoint, { signal }: CopyFilesOptions): Promise<number> {
  const { readFileBlocks } = await import("../../client/copy/stream-copy.ts");
  for await (const block of readFileBlocks(source, { signal }))
    if (!process.stdout.write(block)) await once(process.stdout, "drain", { signal });
  return 0;
}

/** Returns the endpoint of a path that is not a directory; `remedy` ends the error message. */
async function requireFile(client: ExecServerClient, file: string, remedy: string): Promise<CopyEndpoint> {
  const endpoint = { files: client.files, path: file };
  if (await isDirectory(endpoint)) throw new UsageError(`\`:${file}\` is a directory; ${remedy}`);
  return endpoint;
}

async function isDirectory({ files, path: name }: CopyEndpoint): Promise<boolean> {
  return (await files.exists(name)) && (await files.getMetadata(name)).isDirectory;
}

function parseArguments(positionals: string[]): { sources: CopyArgument[]; destination: CopyArgument } {
  const sources = positionals.map(parseArgument);
  const destination = sources.pop();
  if (!destination || sources.length === 0)
    throw new UsageError("give a SOURCE and a DESTINATION; one of them must start with a colon");
  const kinds = new Set(sources.map(({ type }) => type));
  if (kinds.size > 1 || (kinds.has("stream") && sources.length > 1))
    throw new UsageError("all sources must be local, or all on the server");
  if (kinds.has("remote") === (destination.type === "remote")) {
    throw new UsageError(
      destination.type === "remote"
        ? "both paths are on the server; use `procwire run -- cp`"
        : "both paths are local; one of them must start with a colon, such as `:/tmp/file`",
    );
  }
  return { sources, destination };
}

function parseArgument(text: string): CopyArgument {
  if (text === "-") return { type: "stream" };
  if (text === "") throw new UsageError("a path is empty");
  return text.startsWith(":") ? { type: "remote", path: text.slice(1) || "." } : { type: "local", path: text };
}

function namesDirectory(argument: CopyArgument): boolean {
  return argument.type !== "stream" && /(^|\/)\.{0,2}$/.test(argument.path);
}

function parseLinks(text: string | undefined): "keep" | "follow" | "skip" | undefined {
  if (text === undefined || text === "keep" || text === "follow" || text === "skip") return text;
  throw new UsageError(`unsupported --links \`${text}\`; expected keep, follow or skip`);
}
