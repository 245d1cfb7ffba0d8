"""Replaces renamed names in comments: [`Old`], `Old`, and paths ending in ::Old, within the crate of the definition
(and, if the name is public, in crates that name it in a path)."""
import re,os,sys
root=sys.argv[1]
pairs=[]
for l in open('/srv/tools/types.txt'):
    f,o,n=l.split(); pairs.append((f.split('/')[0],f,o,n))
fns=[]
for l in open('/srv/tools/fns.txt'):
    f,o,n=l.split(); fns.append((f.split('/')[0],f,o,n))
from collections import Counter
def files(crate):
    for r,d,fs in os.walk(os.path.join(root,'crates',crate)):
        for x in fs:
            if x.endswith('.rs'): yield os.path.join(r,x)
amb=Counter((c,o) for c,f,o,n in pairs)
log=[]
for c,f,o,n in pairs:
    for p in files(c):
        rel=os.path.relpath(p,os.path.join(root,'crates'))
        if amb[(c,o)]>1:
            # only near its definition
            d=f.rsplit('/',1)[0]
            if not rel.startswith(d): continue
        s=open(p).read(); out=[]
        for line in s.split('\n'):
            i=line.find('//')
            if i>=0:
                head,com=line[:i],line[i:]
                com2=re.sub(r'(`(?:[\w:]*::)?)'+o+r'((?:::\w+)?(?:\(\))?`)',r'\g<1>'+n+r'\2',com)
                com2=re.sub(r'\b((?:crate|super|self|\w+)::(?:\w+::)*)'+o+r'\b(?=[\s:`)\]])',r'\g<1>'+n,com2)
                if com2!=com: log.append((rel,com.strip(),com2.strip()))
                line=head+com2
            out.append(line)
        t='\n'.join(out)
        if t!=s: open(p,'w').write(t)
for c,f,o,n in fns:
    for p in files(c):
        s=open(p).read()
        t=re.sub(r'(//[^\n]*`(?:[\w:]+::))'+o+r'(`|\(\)`)',r'\g<1>'+n+r'\2',s)
        if t!=s: log.append((p,'fn '+o,n)); open(p,'w').write(t)
for x in log: print(x)
