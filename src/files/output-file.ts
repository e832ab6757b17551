import { accessSync, closeSync, constants, openSync, type Stats, writeFileSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import path from "node:path";
import { hasDescriptorPaths, O_PATH } from "./open-no-follow.ts";
import { OutputDirectory } from "./output-directory.ts";

/** Returns the reason why a directory, given by its real path, must not be written; null if it may be. */
export type DirectoryJudge = (realDirectory: string) => Promise<string | null>;

export interface OutputFileOptions {
  /** Creates missing parent directories. Default: false. */
  makeParents?: boolean;
  /** Checks the opened directory. If set, only a regular or missing file is accepted. Default: no check. */
  judgeDirectory?: DirectoryJudge | undefined;
}

/** Text is written in chunks of about this size. */
const WRITE_CHARS = 64 * 1024;

/** Paths of descriptors: `/dev/stdout`, or `/dev/fd/63` of a shell's process substitution. */
const DESCRIPTOR_NAMES = /^\/dev\/(?<stream>stdout|stderr)$|^\/(?:dev|proc\/self)\/fd\/(?<number>\d+)$/;

/** A file that grows while it is written. Dispose it before its `OutputFile`. */
export interface GrowingFile extends AsyncDisposable {
  write(text: string): void;
}

/**
 * A device or a named pipe, which is written to but not replaced. `fd` identifies it without opening it for writing,
 * which would block until a pipe has a reader; null if the system has no such descriptors.
 */
interface SpecialTarget {
  type: "special";
  fd: number | null;
  path: string;
}

/** The target of an output file. */
type OutputTarget =
  | { type: "stream"; stream: NodeJS.WritableStream }
  | SpecialTarget
  | { type: "regular"; directory: OutputDirectory; name: string };

/**
 * A file that a user named for output. Open it before the first command runs: its directory, device or pipe stays open from
 * then on, so a command that replaces it redirects nothing. A regular file appears completely or not at all, and
 * replaces only a regular file; an existing symbolic link is an error.
 */
export class OutputFile implements AsyncDisposable {
  /** The absolute path; `-` for standard output. */
  readonly path: string;
  readonly #target: OutputTarget;

  private constructor(file: string, target: OutputTarget) {
    this.path = file;
    this.#target = target;
  }

  static stdout(): OutputFile {
    return new OutputFile("-", { type: "stream", stream: process.stdout });
  }

  static async open(file: string, options: OutputFileOptions = {}): Promise<OutputFile> {
    const absolute = path.resolve(file);
    const descriptor = options.judgeDirectory ? null : openDescriptor(absolute);
    if (descriptor) return new OutputFile(absolute, descriptor);
    const directory = OutputDirectory.open(path.dirname(absolute), { make: options.makeParents });
    try {
      const refusal = await options.judgeDirectory?.(directory.realPath);
      if (typeof refusal === "string") throw new Error(`write ${absolute}: ${refusal}`);
      const name = path.basename(absolute);
      const special = options.judgeDirectory ? null : openSpecial(directory, name);
      if (!special) {
        directory.checkReplaceable(name);
        directory.checkWritable();
        return new OutputFile(absolute, { type: "regular", directory, name });
      }
      directory[Symbol.dispose]();
      return new OutputFile(absolute, special);
    } catch (error) {
      directory[Symbol.dispose]();
      throw error;
    }
  }

  /** Whether a regular file has the name of this file, which a write replaces. */
  get wouldReplace(): boolean {
    const target = this.#target;
    return target.type === "regular" && target.directory.status(target.name) !== null;
  }

  /**
   * Writes the whole content. Throws if the directory was moved or replaced since it was opened; the file is then in the
   * opened directory, and the message names its path.
   */
  async write(texts: Iterable<string> | AsyncIterable<string>): Promise<void> {
    const target = this.#target;
    if (target.type === "stream") return writeTexts((text) => writeToStream(target.stream, text), texts);
    if (target.type === "special") {
      await using handle = await openSpecialForWriting(target);
      return await writeTexts((text) => handle.appendFile(text), texts);
    }
    const { directory, name } = target;
    directory.checkReplaceable(name);
    await using pending = await directory.create();
    await writeTexts((text) => pending.handle.appendFile(text), texts);
    // Flushed to disk before it replaces the old file.
    await pending.handle.sync();
    pending.commit(name);
    if (directory.hasMoved) {
      throw new Error(
        `write ${this.path}: the directory was moved or replaced meanwhile; the file is in ${directory.realPath}`,
      );
    }
  }

  /** Starts a file that readers see while it grows. It replaces the old file at once. */
  async start(): Promise<GrowingFile> {
    const target = this.#target;
    if (target.type === "stream") {
      return {
        write: (text) => void target.stream.write(text),
        [Symbol.asyncDispose]: async () => undefined,
      };
    }
    if (target.type === "special") {
      const handle = await openSpecialForWriting(target);
      return { write: (text) => writeFileSync(handle.fd, text), [Symbol.asyncDispose]: () => handle.close() };
    }
    const file = await target.directory.create();
    try {
      file.commit(target.name);
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
    return {
      write: (text) => writeFileSync(file.handle.fd, text),
      [Symbol.asyncDispose]: () => file[Symbol.asyncDispose](),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#target.type === "regular") this.#target.directory[Symbol.dispose]();
    if (this.#target.type === "special" && this.#target.fd !== null) closeSync(this.#target.fd);
  }
}

/** Opens a path that refers to a descriptor of this process; null for any other path. */
function openDescriptor(file: string): OutputTarget | null {
  const found = DESCRIPTOR_NAMES.exec(file)?.groups;
  if (!found) return null;
  const { stream, number } = found;
  if (stream === "stdout" || number === "1") return { type: "stream", stream: process.stdout };
  if (stream === "stderr" || number === "2") return { type: "stream", stream: process.stderr };
  return openSpecialTarget(file, 0);
}

/** Opens a device or a named pipe; null if the name is missing or another kind of file. */
function openSpecial(directory: OutputDirectory, name: string): OutputTarget | null {
  const existing = directory.status(name);
  // Only root makes links in /dev, such as /dev/log.
  const isSystemLink = existing?.isSymbolicLink() === true && directory.realPath === "/dev";
  if (!existing || (!isSystemLink && !isSpecial(existing))) return null;
  return openSpecialTarget(directory.entryPath(name), isSystemLink ? 0 : constants.O_NOFOLLOW);
}

function openSpecialTarget(file: string, noFollow: number): OutputTarget {
  if (!hasDescriptorPaths()) return { type: "special", fd: null, path: file };
  const fd = openSync(file, O_PATH | noFollow);
  const target = { type: "special", fd, path: `/proc/self/fd/${fd}` } as const;
  try {
    accessSync(target.path, constants.W_OK);
    return target;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function openSpecialForWriting({ fd, path }: SpecialTarget): Promise<FileHandle> {
  const noFollow = fd === null ? constants.O_NOFOLLOW : 0;
  return open(path, constants.O_WRONLY | constants.O_APPEND | noFollow);
}

function isSpecial(found: Stats): boolean {
  return found.isFIFO() || found.isCharacterDevice() || found.isBlockDevice();
}

async function writeTexts(
  append: (text: string) => Promise<void>,
  texts: Iterable<string> | AsyncIterable<string>,
): Promise<void> {
  let buffered = "";
  for await (const text of texts) {
    buffered += text;
    if (buffered.length < WRITE_CHARS) continue;
    await append(buffered);
    buffered = "";
  }
  await append(buffered);
}

function writeToStream(stream: NodeJS.WritableStream, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
