#!/usr/bin/env python3
"""Renames symbols with rust-analyzer. usage: rename.py ROOT LIST
Each line of LIST: FILE<TAB>REGEX with one group for the name<TAB>NEW"""
import json,subprocess,sys,os,re,threading,queue,time,urllib.parse
root=os.path.abspath(sys.argv[1])
env=dict(os.environ); env['CARGO_TARGET_DIR']='/srv/x/ra'
p=subprocess.Popen(['rust-analyzer'],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=open('/tmp/ra.err','w'),cwd=root,env=env)
inbox=queue.Queue(); state={'quiescent':False}
def send(m):
    b=json.dumps(m).encode(); p.stdin.write(b'Content-Length: %d\r\n\r\n'%len(b)+b); p.stdin.flush()
def reader():
    f=p.stdout
    while True:
        n=0
        while True:
            l=f.readline()
            if not l: return
            if l==b'\r\n': break
            if l.lower().startswith(b'content-length'): n=int(l.split(b':')[1])
        m=json.loads(f.read(n))
        if 'method' in m:
            if m['method']=='experimental/serverStatus':
                state['quiescent']=m['params']['quiescent']; 
            if 'id' in m:
                r=None
                if m['method']=='workspace/configuration': r=[None]*len(m['params']['items'])
                send({'jsonrpc':'2.0','id':m['id'],'result':r})
        else: inbox.put(m)
threading.Thread(target=reader,daemon=True).start()
nid=0
def req(method,params):
    global nid; nid+=1; my=nid
    send({'jsonrpc':'2.0','id':my,'method':method,'params':params})
    while True:
        m=inbox.get(timeout=900)
        if m.get('id')==my: return m
def uri(f): return 'file://'+urllib.parse.quote(f)
opts={'cargo':{'allTargets':True,'features':'all'},'checkOnSave':False,'cachePriming':{'enable':True},'procMacro':{'enable':True},'files':{'excludeDirs':['fuzz/target','target']},'numThreads':2}
req('initialize',{'processId':os.getpid(),'rootUri':uri(root),'workspaceFolders':[{'uri':uri(root),'name':'w'}],'capabilities':{'experimental':{'serverStatusNotification':True},'workspace':{'workspaceEdit':{'documentChanges':True,'resourceOperations':['rename','create','delete']},'didChangeWatchedFiles':{'dynamicRegistration':True},'configuration':True},'textDocument':{'rename':{'prepareSupport':True}},'general':{'positionEncodings':['utf-8']}},'initializationOptions':opts})
send({'jsonrpc':'2.0','method':'initialized','params':{}})
t=time.time()
time.sleep(5)
while not state['quiescent']:
    time.sleep(1)
    if time.time()-t>1500: print('no quiescence'); break
print('ready after',int(time.time()-t),'s',flush=True)
opened={}
def text(f): return open(f).read()
def sync(f):
    t=text(f); v=opened.get(f,0)+1; opened[f]=v
    if v==1: send({'jsonrpc':'2.0','method':'textDocument/didOpen','params':{'textDocument':{'uri':uri(f),'languageId':'rust','version':v,'text':t}}})
    else: send({'jsonrpc':'2.0','method':'textDocument/didChange','params':{'textDocument':{'uri':uri(f),'version':v},'contentChanges':[{'text':t}]}})
def apply(edit):
    ch={}; moves=[]
    for d in edit.get('documentChanges',[]):
        if 'kind' in d:
            if d['kind']=='rename':
                a=urllib.parse.unquote(d['oldUri'][7:]); b=urllib.parse.unquote(d['newUri'][7:])
                moves.append((a,b))
            continue
        ch.setdefault(d['textDocument']['uri'],[]).extend(d['edits'])
    for u,e in edit.get('changes',{}).items(): ch.setdefault(u,[]).extend(e)
    n=0
    for u,es in ch.items():
        f=urllib.parse.unquote(u[7:]); lines=text(f).encode().split(b'\n')
        seen=set()
        es=[e for e in es if not ((k:=json.dumps(e['range'])) in seen or seen.add(k))]
        es.sort(key=lambda e:(e['range']['start']['line'],e['range']['start']['character']),reverse=True)
        for e in es:
            s,en=e['range']['start'],e['range']['end']
            assert s['line']==en['line']
            l=lines[s['line']]; lines[s['line']]=l[:s['character']]+e['newText'].encode()+l[en['character']:]; n+=1
        open(f,'wb').write(b'\n'.join(lines)); sync(f)
    events=[]
    for a,b in moves:
        os.makedirs(os.path.dirname(b),exist_ok=True)
        if not os.path.exists(a): print('   no',a); continue
        old=[os.path.join(r,x) for r,_,fs in os.walk(a) for x in fs] if os.path.isdir(a) else [a]
        subprocess.check_call(['git','mv',a,b],cwd=root); print('   moved',a[len(root)+1:],b[len(root)+1:])
        for o in old:
            if o in opened:
                send({'jsonrpc':'2.0','method':'textDocument/didClose','params':{'textDocument':{'uri':uri(o)}}}); del opened[o]
            new=b+o[len(a):]
            events+= [{'uri':uri(o),'type':3},{'uri':uri(new),'type':1}]
    if moves:
        send({'jsonrpc':'2.0','method':'workspace/didChangeWatchedFiles','params':{'changes':events}})
        time.sleep(3)
        while not state['quiescent']: time.sleep(0.5)
    return n,len(ch)
for line in open(sys.argv[2]):
    line=line.rstrip('\n')
    if not line or line.startswith('#'): continue
    f,rx,new=line.split('\t'); f=os.path.join(root,f)
    if not os.path.exists(f): print('MISSING',line,flush=True); continue
    t_=text(f); m=re.search(rx,t_,re.M)
    if not m: print('NOT FOUND',line,flush=True); continue
    if f not in opened: sync(f)
    at=m.start(1); ln=t_.count('\n',0,at); col=len(t_[t_.rfind('\n',0,at)+1:at].encode())
    for attempt in range(5):
        r=req('textDocument/rename',{'textDocument':{'uri':uri(f)},'position':{'line':ln,'character':col},'newName':new})
        if 'error' in r and r['error']['code'] in(-32801,-32800,-32802): time.sleep(1); continue
        break
    if 'error' in r or not r.get('result'): print('ERROR',m.group(1),new,r.get('error'),flush=True); continue
    n,k=apply(r['result']); print(f'{m.group(1)} -> {new}: {n} places in {k} files',flush=True)
p.kill()
