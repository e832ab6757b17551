import { execFileSync } from "node:child_process";

/** Users that run a server in a test: root if the test runs as root, and always an ordinary user. */

export interface User {
  name: "root" | "an ordinary user";
  uid: number;
}

/** The user `nobody`, as which root can run programs. */
const NOBODY = 65534;
const own = process.getuid?.() ?? NOBODY;
export const USERS: readonly User[] =
  own === 0
    ? [
        { name: "root", uid: 0 },
        { name: "an ordinary user", uid: NOBODY },
      ]
    : [{ name: "an ordinary user", uid: own }];

/** Returns the arguments that precede a command to run it as another user. */
export const commandAs = ({ uid }: User): string[] =>
  uid === own ? [] : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];

/** Makes a user the owner of a directory tree. Does not follow links. */
export function changeOwner({ uid }: User, path: string): void {
  if (uid !== own) execFileSync("chown", ["-hR", `${uid}:${uid}`, path]);
}
