/** Who runs a server in a test: root where the test is, and an ordinary user in any case. */

export interface User {
  name: "root" | "an ordinary user";
  uid: number;
}

/** `nobody`, as which root can run anything. */
const NOBODY = 65534;
const own = process.getuid?.() ?? NOBODY;
export const USERS: readonly User[] =
  own === 0
    ? [
        { name: "root", uid: 0 },
        { name: "an ordinary user", uid: NOBODY },
      ]
    : [{ name: "an ordinary user", uid: own }];

/** What comes before a program's name to run it as somebody else. */
export const commandAs = ({ uid }: User): string[] =>
  uid === own ? [] : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];
