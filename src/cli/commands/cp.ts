import { createHash } from "node:crypto";
import { once } from "node:events";
import path from "node:path";
import { visibleText } from "../../base/printable-text.ts";
import type { CopyFilesOptions, CopyPlace, CopyResult } from "../../client/copy/copy-types.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { type Command, commandOf, UsageError } from "../command.ts";
import { leave } from "../leave.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  neededServerUrl,
} from "../options/connect-options.ts";
import { CopyProgress } from "../terminal/copy-progress.ts";

const HELP = `Usage: procwire cp [options] SOURCE... DESTINATION

Copies files and folders to or from a server. A path of the server begins with a colon; a relative one is below the
directory the server runs in. \`-\` is this program's stdin or stdout.

  procwire cp app.tar :/srv/app.tar      to the server
  procwire cp :/var/log/app ./logs       a folder from the server
  tar c src | procwire cp - :/tmp/s.tar  from a stream

A file appears at its place in one step when all of it has arrived with the right SHA-256. Modes and times are kept. A
folder is copied as DESTINATION; with a \`/\` at its end, or several sources, into it. The same command again skips what is
there already and goes on with a file that was interrupted.

  --links HOW        symbolic links in a folder: keep (default), follow or skip. One that is named itself is followed
  --checksum         compare files that are there already by content; default: by size and time
  -q, --quiet        no progress on the terminal
${CONNECT_HELP}
Without --connect: ${DEFAULT_URL}.
Exit codes: 0 all is copied, 1 something is not, 130 interrupted.
`;

const INTERRUPTED = 130;

/** One word of the command line. */
type Place = { type: "stream" } | { type: "here"; path: string } | { type: "there"; path: string };

export const command: Command = commandOf({
  name: "cp",
  summary: "copy files and folders to or from a server",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    links: { type: "string" },
    checksum: { type: "boolean" },
    quiet: { type: "boolean", short: "q" },
  },

  async run(values, words) {
    const links = linksOf(values.links);
    const { sources, destination } = placesOf(words);
    await using client = await connectTo(neededServerUrl(values.connect), values);
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
      onKept: (part) => kept.push(part),
    };
    try {
      return leave(await copyAll(client, sources, destination, options, progress));
    } catch (error) {
      progress?.clear();
      if (!signal.aborted) throw error;
      process.stderr.write("procwire cp: interrupted\n");
      return leave(INTERRUPTED);
    } finally {
      for (const part of kept)
        process.stderr.write(
          `procwire cp: what has arrived is kept in ${visibleText(part)}; the same command goes on from there\n`,
        );
    }
  },
});

async function copyAll(
  client: ExecServerClient,
  sources: Place[],
  destination: Place,
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
  const placeOf = (place: Place, name = ""): CopyPlace => {
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
    // A folder is copied as the destination, so that the same command again goes on with it; a file goes into a folder.
    const into = isInto || ((await isFolder(whole)) && !(await isFolder(from)));
    if (into) await whole.files.createDirectory(whole.path);
    const name = path.posix.basename(from.path);
    const result = await copyFiles(from, into ? placeOf(destination, name) : whole, options);
    progress?.finish(result);
    if (!told(result)) code = 1;
  }
  return code;
}

function told({ problems }: CopyResult): boolean {
  for (const { path: what, message } of problems)
    process.stderr.write(`procwire cp: ${visibleText(`${what}: ${message}`)}\n`);
  return problems.length === 0;
}

async function streamTo(place: CopyPlace, { signal }: CopyFilesOptions): Promise<number> {
  const { copyStreamToFile } = await import("../../client/copy/stream-copy.ts");
  await copyStreamToFile(process.stdin, place, { signal, digest: createHash("sha256") });
  return 0;
}

async function streamFrom(place: CopyPlace, { signal }: CopyFilesOptions): Promise<number> {
  const { fileBlocks } = await import("../../client/copy/stream-copy.ts");
  for await (const block of fileBlocks(place, { signal }))
    if (!process.stdout.write(block)) await once(process.stdout, "drain", { signal });
  return 0;
}

/** A place that is no folder; `wanted` says to a person what is taken instead. */
async function fileAt(client: ExecServerClient, what: string, wanted: string): Promise<CopyPlace> {
  const place = { files: client.files, path: what };
  if (await isFolder(place)) throw new UsageError(`\`:${what}\` is a folder; ${wanted}`);
  return place;
}

async function isFolder({ files, path: what }: CopyPlace): Promise<boolean> {
  return (await files.exists(what)) && (await files.getMetadata(what)).isDirectory;
}

function placesOf(words: string[]): { sources: Place[]; destination: Place } {
  const places = words.map(placeOf);
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

function placeOf(word: string): Place {
  if (word === "-") return { type: "stream" };
  if (word === "") throw new UsageError("an empty path was given");
  return word.startsWith(":") ? { type: "there", path: word.slice(1) || "." } : { type: "here", path: word };
}

function isFolderName(place: Place): boolean {
  return place.type !== "stream" && /(^|\/)\.{0,2}$/.test(place.path);
}

function linksOf(text: string | undefined): "keep" | "follow" | "skip" | undefined {
  if (text === undefined || text === "keep" || text === "follow" || text === "skip") return text;
  throw new UsageError(`unsupported --links \`${text}\`; expected keep, follow or skip`);
}
