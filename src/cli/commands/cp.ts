import { createHash } from "node:crypto";
import { once } from "node:events";
import path from "node:path";
import { printableText } from "../../base/printable-text.ts";
import type { CopyEndpoint, CopyFilesOptions, CopyResult } from "../../client/copy/copy-types.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  requireServerUrl,
} from "../options/connect-options.ts";
import { forceExit } from "../support/forced-exit.ts";
import { CopyProgress } from "../terminal/copy-progress.ts";

const HELP = `Usage: procwire cp [options] SOURCE... DESTINATION

Copy files and directories to or from a server. A path on the server starts with a colon; a relative path is resolved
against the working directory of the server. \`-\` is stdin or stdout.

  procwire cp app.tar :/srv/app.tar      to the server
  procwire cp :/var/log/app ./logs       a directory from the server
  tar c src | procwire cp - :/tmp/s.tar  from a stream

Each file is written atomically after its SHA-256 is verified. Modes and times are preserved. A directory is copied as
DESTINATION, or into it if DESTINATION ends with \`/\` or there are several sources. Running the same command again skips
existing files and resumes an interrupted file.

  --links HOW        symbolic links in a directory: keep, follow or skip (default: keep); a SOURCE that is a link is followed
  --checksum         compare existing files by content instead of size and time
  -q, --quiet        do not show progress
${CONNECT_HELP}
Without --connect: ${DEFAULT_URL}.
Exit codes: 0 all copied, 1 some not copied, 130 interrupted.
`;

const INTERRUPTED = 130;

/** One SOURCE or DESTINATION argument. */
type CopyArgument = { type: "stream" } | { type: "here"; path: string } | { type: "there"; path: string };

export const command: Command = defineCommand({
  name: "cp",
  summary: "copy files and directories to or from a server",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    links: { type: "string" },
    checksum: { type: "boolean" },
    quiet: { type: "boolean", short: "q" },
  },

  async run(values, words) {
    const links = linksOf(values.links);
    const { sources, destination } = parseArguments(words);
    await using client = await connectTo(requireServerUrl(values.connect), values);
    const interrupted = new AbortController();
    const stop = () => interrupted.abort(new Error("interrupted"));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, stop);
    const progress = !values.quiet && process.stderr.isTTY ? new CopyProgress(process.stderr) : null;
    const kept: string[] = [];
    const { signal } = interrupted;
    const options: CopyFilesOptions = {
      signal,
      links,
      checksum: values.checksum,
      onProgress: (tally) => progress?.update(tally),
      onPartialKept: (part) => kept.push(part),
    };
    try {
      return forceExit(await copyAll(client, sources, destination, options, progress));
    } catch (error) {
      progress?.clear();
      if (!signal.aborted) throw error;
      process.stderr.write("procwire cp: interrupted\n");
      return forceExit(INTERRUPTED);
    } finally {
      for (const part of kept)
        process.stderr.write(
          `procwire cp: partial file kept in ${printableText(part)}; run the same command again to resume\n`,
        );
    }
  },
});

async function copyAll(
  client: ExecServerClient,
  sources: CopyArgument[],
  destination: CopyArgument,
  options: CopyFilesOptions,
  progress: CopyProgress | null,
): Promise<number> {
  const cwd = client.backend.defaultCwd ?? "/";
  const base = /^file:/i.test(cwd) ? pathFromUri(cwd) : cwd;
  const there = (place: string) => path.posix.resolve(base, place);
  const [only] = sources;
  if (only?.type === "stream" && destination.type === "there")
    return streamTo(
      await fileAt(client, there(destination.path), "give the name of a file that stdin is written to"),
      options,
    );
  if (only?.type === "there" && destination.type === "stream")
    return streamFrom(
      await fileAt(client, there(only.path), "only a file can be written to stdout"),
      options,
    );

  const [{ Environment }, { copyFiles }] = await Promise.all([
    import("../../host/local-environment.ts"),
    import("../../client/copy/copy-files.ts"),
  ]);
  await using here = await Environment.create(null);
  const placeOf = (place: CopyArgument, name = ""): CopyEndpoint => {
    if (place.type === "stream")
      throw new UsageError("stdin and stdout (`-`) go with one path of the server, such as `:/tmp/file`");
    return place.type === "there"
      ? { files: client.files, path: there(`${place.path}/${name}`) }
      : { files: here.files, path: path.resolve(place.path, name) };
  };
  const isInto = sources.length > 1 || isFolderName(destination);
  let code = 0;
  for (const source of sources) {
    const from = placeOf(source);
    const whole = placeOf(destination);
    // A directory is copied as the destination, so that the same command resumes it. A file is copied into a directory.
    const into = isInto || ((await isFolder(whole)) && !(await isFolder(from)));
    if (into) await whole.files.createDirectory(whole.path);
    const name = path.posix.basename(from.path);
    const to = into ? { ...placeOf(destination, name), within: whole.path } : whole;
    const result = await copyFiles(from, to, options);
    progress?.finish(result);
    if (!reportProblems(result)) code = 1;
  }
  return code;
}

function reportProblems({ problems }: CopyResult): boolean {
  for (const { path: what, message } of problems)
    process.stderr.write(`procwire cp: ${printableText(`${what}: ${message}`)}\n`);
  return problems.length === 0;
}

async function streamTo(place: CopyEndpoint, { signal }: CopyFilesOptions): Promise<number> {
  const { copyStreamToFile } = await import("../../client/copy/stream-copy.ts");
  await copyStreamToFile(process.stdin, place, { signal, digest: createHash("sha256") });
  return 0;
}

async function streamFrom(place: CopyEndpoint, { signal }: CopyFilesOptions): Promise<number> {
  const { readFileBlocks } = await import("../../client/copy/stream-copy.ts");
  for await (const block of readFileBlocks(place, { signal }))
    if (!process.stdout.write(block)) await once(process.stdout, "drain", { signal });
  return 0;
}

/** Returns the endpoint of a path that is not a directory; `wanted` completes the error message. */
async function fileAt(client: ExecServerClient, what: string, wanted: string): Promise<CopyEndpoint> {
  const place = { files: client.files, path: what };
  if (await isFolder(place)) throw new UsageError(`\`:${what}\` is a directory; ${wanted}`);
  return place;
}

async function isFolder({ files, path: what }: CopyEndpoint): Promise<boolean> {
  return (await files.exists(what)) && (await files.getMetadata(what)).isDirectory;
}

function parseArguments(words: string[]): { sources: CopyArgument[]; destination: CopyArgument } {
  const places = words.map(parseArgument);
  const destination = places.pop();
  if (!destination || places.length === 0)
    throw new UsageError("a source and a destination are needed; one of them begins with a colon");
  const kinds = new Set(places.map(({ type }) => type));
  if (kinds.size > 1 || (kinds.has("stream") && places.length > 1))
    throw new UsageError("all sources must be on one side: here, or at the server");
  if (kinds.has("there") === (destination.type === "there")) {
    throw new UsageError(
      destination.type === "there"
        ? "both paths are at the server; `procwire run -- cp` copies there"
        : "neither path is at the server; one of them must begin with a colon, such as `:/tmp/file`",
    );
  }
  return { sources: places, destination };
}

function parseArgument(word: string): CopyArgument {
  if (word === "-") return { type: "stream" };
  if (word === "") throw new UsageError("an empty path was given");
  return word.startsWith(":") ? { type: "there", path: word.slice(1) || "." } : { type: "here", path: word };
}

function isFolderName(place: CopyArgument): boolean {
  return place.type !== "stream" && /(^|\/)\.{0,2}$/.test(place.path);
}

function linksOf(text: string | undefined): "keep" | "follow" | "skip" | undefined {
  if (text === undefined || text === "keep" || text === "follow" || text === "skip") return text;
  throw new UsageError(`unsupported --links \`${text}\`; expected keep, follow or skip`);
}
